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
    /// Of clusters with feature level 3, before deployments had contents.
    Five,
    /// Of clusters with feature level 4.
    Six,
    /// Of clusters with feature level 5.
    Seven,
    /// All that this version knows.
    Eight,
}

/// How much of the types that have grown since one form has. What is not named here is as in the next form.
struct Lengths {
    /// Structs by name, with the number of their fields.
    fields: &'static [(&'static str, usize)],
    /// Cases with named fields: enum, case, number of fields.
    variant_fields: &'static [(&'static str, &'static str, usize)],
    /// Enums, with the number of their cases.
    variants: &'static [(&'static str, usize)],
}

impl Form {
    pub const NEWEST: Self = Self::Eight;

    const ALL: [Self; 8] = [
        Self::One,
        Self::Two,
        Self::Three,
        Self::Four,
        Self::Five,
        Self::Six,
        Self::Seven,
        Self::Eight,
    ];

    /// The form that every server of a cluster at this level reads.
    pub fn of_level(feature_level: u32) -> Self {
        match feature_level {
            0 | 1 => Self::One,
            2 => Self::Four,
            3 => Self::Five,
            4 => Self::Six,
            5 => Self::Seven,
            _ => Self::Eight,
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
            Self::Seven => 7,
            Self::Eight => 8,
        }
    }

    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.number() == number)
    }

    /// How many fields the struct has in this form, where it has grown since.
    fn fields(self, name: &str) -> Option<usize> {
        let mut rows = self.lengths_from_here().flat_map(|lengths| lengths.fields);
        rows.find_map(|(found, count)| (*found == name).then_some(*count))
    }

    /// The same for a case of an enum that has named fields.
    fn variant_fields(self, name: &str, variant: &str) -> Option<usize> {
        let mut rows = self
            .lengths_from_here()
            .flat_map(|lengths| lengths.variant_fields);
        rows.find_map(|(found, case, count)| (*found == name && *case == variant).then_some(*count))
    }

    /// How many cases the enum has in this form, where it has grown since. Cases that came to an enum after form 2
    /// cannot stand in what forms 2 and 3 have written, so that they are not told apart.
    fn variants(self, name: &str) -> Option<usize> {
        let mut rows = self.lengths_from_here().flat_map(|lengths| lengths.variants);
        rows.find_map(|(found, count)| (*found == name).then_some(*count))
    }

    /// What this form and those after it have of types that have grown.
    fn lengths_from_here(self) -> impl Iterator<Item = &'static Lengths> {
        Self::ALL
            .into_iter()
            .filter(move |form| *form >= self)
            .filter_map(Self::lengths)
    }

    fn lengths(self) -> Option<&'static Lengths> {
        match self {
            Self::One => Some(&FORM_ONE),
            Self::Two => Some(&FORM_TWO),
            Self::Three => Some(&FORM_THREE),
            Self::Four => Some(&FORM_FOUR),
            Self::Five => Some(&FORM_FIVE),
            Self::Six => Some(&FORM_SIX),
            Self::Seven => Some(&FORM_SEVEN),
            Self::Eight => None,
        }
    }
}

// Names of types are unique among all that is stored.

const FORM_ONE: Lengths = Lengths {
    fields: &[
        ("Deployment", 7),
        ("GenerationInfo", 3),
        ("Node", 12),
        ("NodeInfo", 7),
        ("Replica", 6),
        ("Service", 19),
        ("State", 20),
    ],
    variant_fields: &[
        ("ClusterCommand", "TermBegan", 1),
        ("ClusterCommand", "UseToken", 5),
        ("DeploymentCommand", "ApplyManifests", 3),
    ],
    variants: &[
        ("ClusterCommand", 10),
        ("NodeCommand", 6),
        ("PlanCommand", 10),
        ("ReplicaEvent", 11),
        ("Stale", 8),
        ("StopReason", 7),
    ],
};

const FORM_TWO: Lengths = Lengths {
    fields: &[
        ("Deployment", 9),
        ("GenerationInfo", 4),
        ("Node", 14),
        ("Replica", 9),
        ("Service", 21),
    ],
    variant_fields: &[],
    variants: &[],
};

const FORM_THREE: Lengths = Lengths {
    fields: &[("State", 23)],
    variant_fields: &[
        ("ClusterCommand", "Bootstrap", 2),
        ("ClusterCommand", "RaiseFeatureLevel", 1),
    ],
    variants: &[],
};

const FORM_FOUR: Lengths = Lengths {
    fields: &[("NodeIds", 3), ("NodeInfo", 8)],
    variant_fields: &[],
    variants: &[],
};

const FORM_FIVE: Lengths = Lengths {
    fields: &[("Deployment", 9), ("NodeInfo", 9), ("Replica", 9), ("Secret", 2)],
    variant_fields: &[],
    variants: &[],
};

const FORM_SIX: Lengths = Lengths {
    fields: &[("NodeInfo", 10), ("Service", 21)],
    variant_fields: &[
        ("DeploymentCommand", "Deploy", 3),
        ("PlanCommand", "Fail", 4),
        ("RevisionOutcome", "Reverted", 1),
    ],
    variants: &[
        ("DeploymentCommand", 7),
        ("Outcome", 5),
        ("Phase", 6),
        ("PlanCommand", 12),
        ("Stale", 9),
    ],
};

const FORM_SEVEN: Lengths = Lengths {
    fields: &[
        ("Deployment", 10),
        ("NodeInfo", 11),
        ("Replica", 10),
        ("Rollout", 3),
        ("Service", 25),
        ("Source", 2),
        ("SourceSettings", 2),
        ("State", 24),
    ],
    variant_fields: &[("DeploymentCommand", "ApplyManifests", 4)],
    variants: &[
        ("ApiRole", 2),
        ("ClusterCommand", 15),
        ("DeploymentCommand", 9),
        ("PlanCommand", 14),
        ("RunOutcome", 4),
        ("Stale", 10),
    ],
};

impl State {
    /// The form in which this state is stored and hashed.
    pub fn form(&self) -> Form {
        Form::of_level(self.feature_level)
    }
}
