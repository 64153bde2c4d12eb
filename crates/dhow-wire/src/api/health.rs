//! The bodies of `/health` and `/ready`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthDocument {
    /// `ok`.
    #[schema(value_type = String)]
    pub status: Cow<'static, str>,
}

impl HealthDocument {
    pub fn ok() -> Self {
        Self { status: "ok".into() }
    }
}
