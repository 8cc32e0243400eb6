//! The names of the tables' figures.

/// A figure of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Digits after the point.
    pub digits: usize,
}

impl Label {
    /// Its name and its unit.
    pub(super) fn with_unit(&self) -> String {
        match self.unit {
            "" => self.name.to_owned(),
            unit => format!("{} ({unit})", self.name),
        }
    }
}
