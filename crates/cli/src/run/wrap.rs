//! Wrappers around a device, from their text.

use std::sync::Arc;

use env::{Device, Host};

use super::session::RunError;

/// The device in its wrapper.
pub(super) fn wrap(
    _device: Arc<dyn Device>,
    text: &str,
    _host: &Arc<dyn Host>,
) -> Result<Arc<dyn Device>, RunError> {
    Err(RunError::Impossible(format!("the wrapper `{text}` is not known")))
}
