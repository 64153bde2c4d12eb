//! The rules that a spec must keep beyond its types. Filled by `check_deployment`.
