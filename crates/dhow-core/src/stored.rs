//! The binary forms of what is stored and sent between servers, by number. Postcard does not describe itself: a
//! value is its fields in order. So a newer form only appends: fields to the end of a struct (with
//! `#[serde(default)]`), cases to the end of an enum. What an older form has of a type that has grown stands in
//! the table below; reading that form, the fields beyond are absent and get their defaults, and writing it, they
//! are left out.
//!
//! Called by the log's forms in `dhow-wire` and by the hash of the state. It never writes a case that the form
//! does not have: the caller gets an error, because a server of the older version could not read it.

mod read;
mod write;

use crate::state::State;

pub use read::Reading;
pub use write::Writing;

/// A form, by the number that stands before the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// The first one, of clusters with feature level 1.
    One,
    /// All that this version knows.
    Two,
}

impl Form {
    pub const NEWEST: Self = Self::Two;

    /// The form that every server of a cluster at this level reads.
    pub fn of_level(feature_level: u32) -> Self {
        match feature_level {
            0 | 1 => Self::One,
            _ => Self::Two,
        }
    }

    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    pub fn of_number(number: u8) -> Option<Self> {
        [Self::One, Self::Two]
            .into_iter()
            .find(|form| form.number() == number)
    }

    /// How many fields the struct has in this form, where it has grown since.
    fn fields(self, name: &str) -> Option<usize> {
        self.look_up(
            FIELDS_OF_FORM_ONE
                .iter()
                .map(|(found, count)| (*found == name, *count)),
        )
    }

    /// The same for a case of an enum that has named fields.
    fn variant_fields(self, name: &str, variant: &str) -> Option<usize> {
        self.look_up(
            VARIANT_FIELDS_OF_FORM_ONE
                .iter()
                .map(|(found, case, count)| (*found == name && *case == variant, *count)),
        )
    }

    /// How many cases the enum has in this form, where it has grown since.
    fn variants(self, name: &str) -> Option<usize> {
        self.look_up(
            VARIANTS_OF_FORM_ONE
                .iter()
                .map(|(found, count)| (*found == name, *count)),
        )
    }

    fn look_up(self, mut rows: impl Iterator<Item = (bool, usize)>) -> Option<usize> {
        match self {
            Self::One => rows.find(|(is_it, _)| *is_it).map(|(_, count)| count),
            Self::Two => None,
        }
    }
}

/// Structs that have grown since form 1, by name, with the number of fields that they had. Names of types are
/// unique among all that is stored.
const FIELDS_OF_FORM_ONE: &[(&str, usize)] = &[
    ("State", 20),
    ("Node", 12),
    ("Deployment", 7),
    ("Service", 19),
    ("Replica", 6),
];

/// Cases with named fields that have grown since form 1: enum, case, number of fields.
const VARIANT_FIELDS_OF_FORM_ONE: &[(&str, &str, usize)] = &[
    ("ClusterCommand", "TermBegan", 1),
    ("ClusterCommand", "UseToken", 5),
    ("DeploymentCommand", "ApplyManifests", 3),
];

/// Enums that have grown since form 1, with the number of cases that they had.
const VARIANTS_OF_FORM_ONE: &[(&str, usize)] =
    &[("ClusterCommand", 10), ("NodeCommand", 6), ("StopReason", 7)];

impl State {
    /// The form in which this state is stored and hashed.
    pub fn form(&self) -> Form {
        Form::of_level(self.feature_level)
    }
}
