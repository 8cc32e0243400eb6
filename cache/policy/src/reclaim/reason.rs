//! The reasons for which a reclaimer is throttled.

/// Why a reclaimer is throttled. Names are the kernel's (`enum vmscan_throttle_state`), and those
/// of the two functions that came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Too much under writeback.
    Writeback,
    /// Too many pages isolated.
    Isolated,
    /// No progress.
    NoProgress,
    /// All dirty pages met are congested.
    Congested,
    /// `congestion_wait`.
    CongestionWait,
    /// `wait_iff_congested`.
    WaitIffCongested,
    /// Tidegate: memory is handed out in turn.
    Turn,
}

impl Reason {
    /// Number of reasons.
    pub const COUNT: usize = 7;
    /// All of them, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Writeback,
        Self::Isolated,
        Self::NoProgress,
        Self::Congested,
        Self::CongestionWait,
        Self::WaitIffCongested,
        Self::Turn,
    ];

    /// The name in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writeback => "VMSCAN_THROTTLE_WRITEBACK",
            Self::Isolated => "VMSCAN_THROTTLE_ISOLATED",
            Self::NoProgress => "VMSCAN_THROTTLE_NOPROGRESS",
            Self::Congested => "VMSCAN_THROTTLE_CONGESTED",
            Self::CongestionWait => "congestion_wait",
            Self::WaitIffCongested => "wait_iff_congested",
            Self::Turn => "TURN",
        }
    }
}

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons(u8);

impl Reasons {
    /// None.
    pub const NONE: Self = Self(0);

    /// These and `reason`.
    #[must_use]
    pub const fn with(self, reason: Reason) -> Self {
        Self(self.0 | 1 << reason as u8)
    }

    /// True if `reason` is one of them.
    #[must_use]
    pub const fn has(self, reason: Reason) -> bool {
        self.0 & 1 << reason as u8 != 0
    }
}
