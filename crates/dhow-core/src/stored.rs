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
    /// Of clusters with feature level 2, as it was before workers' internal tokens were counted: it is only read.
    Two,
    /// The same as it was before a cluster's number of nodes was kept: it is only read.
    Three,
    /// Of clusters with feature level 2, before nodes said where others reach their proxies.
    Four,
    /// Of clusters with feature level 3.
    Five,
    /// All that this version knows.
    Six,
}

impl Form {
    pub const NEWEST: Self = Self::Six;

    /// The form that every server of a cluster at this level reads.
    pub fn of_level(feature_level: u32) -> Self {
        match feature_level {
            0 | 1 => Self::One,
            2 => Self::Four,
            3 => Self::Five,
            _ => Self::Six,
        }
    }

    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Four => 4,
            Self::Five => 5,
            Self::Six => 6,
        }
    }

    pub fn of_number(number: u8) -> Option<Self> {
        [
            Self::One,
            Self::Two,
            Self::Three,
            Self::Four,
            Self::Five,
            Self::Six,
        ]
        .into_iter()
        .find(|form| form.number() == number)
    }

    /// How many fields the struct has in this form, where it has grown since.
    fn fields(self, name: &str) -> Option<usize> {
        let rows: &[(&str, usize)] = match self {
            Self::One => FIELDS_OF_FORM_ONE,
            Self::Two => FIELDS_OF_FORM_TWO,
            Self::Three => FIELDS_OF_FORM_THREE,
            Self::Four => FIELDS_OF_FORM_FOUR,
            Self::Five => FIELDS_OF_FORM_FIVE,
            Self::Six => &[],
        };
        let row = rows.iter().find(|(found, _)| *found == name);
        row.map(|(_, count)| *count)
    }

    /// The same for a case of an enum that has named fields.
    fn variant_fields(self, name: &str, variant: &str) -> Option<usize> {
        let rows: &[(&str, &str, usize)] = match self {
            Self::One => VARIANT_FIELDS_OF_FORM_ONE,
            Self::Two | Self::Three => VARIANT_FIELDS_OF_FORM_THREE,
            Self::Four | Self::Five | Self::Six => &[],
        };
        let row = rows
            .iter()
            .find(|(found, case, _)| *found == name && *case == variant);
        row.map(|(_, _, count)| *count)
    }

    /// How many cases the enum has in this form, where it has grown since. Cases that came to an enum after form 2
    /// cannot stand in what forms 2 and 3 have written, so that they are not told apart.
    fn variants(self, name: &str) -> Option<usize> {
        let rows: &[(&str, usize)] = match self {
            Self::One => VARIANTS_OF_FORM_ONE,
            Self::Two | Self::Three | Self::Four | Self::Five | Self::Six => &[],
        };
        let row = rows.iter().find(|(found, _)| *found == name);
        row.map(|(_, count)| *count)
    }
}

/// Structs that have grown since form 1, by name, with the number of fields that they had. Names of types are
/// unique among all that is stored.
const FIELDS_OF_FORM_ONE: &[(&str, usize)] = &[
    ("Deployment", 7),
    ("GenerationInfo", 3),
    ("Node", 12),
    ("NodeInfo", 7),
    ("Replica", 6),
    ("Secret", 2),
    ("Service", 19),
    ("State", 20),
];

/// The same for form 2. Structs that have not grown since stand here with what they have.
const FIELDS_OF_FORM_TWO: &[(&str, usize)] = &[
    ("Deployment", 9),
    ("GenerationInfo", 4),
    ("Node", 14),
    ("NodeIds", 3),
    ("NodeInfo", 8),
    ("Replica", 9),
    ("Secret", 2),
    ("Service", 21),
    ("State", 23),
];

/// The same for form 3.
const FIELDS_OF_FORM_THREE: &[(&str, usize)] = &[
    ("Deployment", 9),
    ("NodeIds", 3),
    ("NodeInfo", 8),
    ("Replica", 9),
    ("Secret", 2),
    ("State", 23),
];

/// The same for form 4.
const FIELDS_OF_FORM_FOUR: &[(&str, usize)] = &[
    ("Deployment", 9),
    ("NodeIds", 3),
    ("NodeInfo", 8),
    ("Replica", 9),
    ("Secret", 2),
];

/// The same for form 5.
const FIELDS_OF_FORM_FIVE: &[(&str, usize)] =
    &[("Deployment", 9), ("NodeInfo", 9), ("Replica", 9), ("Secret", 2)];

/// Cases with named fields that have grown since form 1: enum, case, number of fields.
const VARIANT_FIELDS_OF_FORM_ONE: &[(&str, &str, usize)] = &[
    ("ClusterCommand", "Bootstrap", 2),
    ("ClusterCommand", "TermBegan", 1),
    ("ClusterCommand", "UseToken", 5),
    ("DeploymentCommand", "ApplyManifests", 3),
];

/// The same for forms 2 and 3.
const VARIANT_FIELDS_OF_FORM_THREE: &[(&str, &str, usize)] = &[
    ("ClusterCommand", "Bootstrap", 2),
    ("ClusterCommand", "RaiseFeatureLevel", 1),
];

/// Enums that have grown since form 1, with the number of cases that they had.
const VARIANTS_OF_FORM_ONE: &[(&str, usize)] = &[
    ("ClusterCommand", 10),
    ("NodeCommand", 6),
    ("PlanCommand", 10),
    ("ReplicaEvent", 11),
    ("Stale", 8),
    ("StopReason", 7),
];

impl State {
    /// The form in which this state is stored and hashed.
    pub fn form(&self) -> Form {
        Form::of_level(self.feature_level)
    }
}
