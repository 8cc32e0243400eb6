//! The conformance suite that every `Env` passes. (The owner of `os` fills it in.)
