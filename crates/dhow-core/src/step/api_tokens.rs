//! Tokens of the API: given out, and taken back. Whether one is good is judged where it is shown, by the clock there.

use std::sync::Arc;

use crate::command::{Missing, Refused};
use crate::maps::retain;
use crate::state::{ApiToken, State};

/// From this level on tokens may be for one deployment.
pub(crate) const ONE_DEPLOYMENT_SINCE: u32 = 6;

/// Those that have expired make room.
pub(super) fn issue(state: &mut State, id: &Arc<str>, token: &Arc<ApiToken>) -> Result<(), Refused> {
    if token.role.deployment().is_some() {
        super::needs_level(state, ONE_DEPLOYMENT_SINCE)?;
    }
    if state.api_tokens.contains_key(id) {
        return Err(Refused::TokenKnown);
    }
    let now = token.created_unix_secs;
    let is_good = |token: &ApiToken| !token.is_expired(now);
    let good = state.api_tokens.values().filter(|token| is_good(token)).count();
    if good >= State::API_TOKENS_MAX {
        return Err(Refused::TooManyApiTokens {
            max: State::API_TOKENS_MAX,
        });
    }
    retain(&mut state.api_tokens, |_, token| is_good(token));
    state.api_tokens.insert(id.clone(), token.clone());
    Ok(())
}

pub(super) fn revoke(state: &mut State, id: &Arc<str>) -> Result<(), Refused> {
    let removed = state.api_tokens.remove(id);
    removed.ok_or_else(|| Missing::ApiToken(id.clone()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::ApiRole;

    fn token(created_unix_secs: i64, expires_unix_secs: Option<i64>) -> Arc<ApiToken> {
        Arc::new(ApiToken {
            hash: [7; 32],
            role: ApiRole::Read,
            name: "ci".into(),
            created_unix_secs,
            expires_unix_secs,
        })
    }

    #[test]
    fn a_token_is_given_out_once_and_taken_back_once() {
        let mut state = State::default();
        let id: Arc<str> = "t-1".into();
        assert_eq!(issue(&mut state, &id, &token(100, None)), Ok(()));
        assert_eq!(
            issue(&mut state, &id, &token(100, None)),
            Err(Refused::TokenKnown)
        );
        assert_eq!(revoke(&mut state, &id), Ok(()));
        let missing = Err(Missing::ApiToken(id.clone()).into());
        assert_eq!(revoke(&mut state, &id), missing);
        assert!(state.api_tokens.is_empty());
    }

    #[test]
    fn one_deployment_is_for_clusters_whose_servers_all_know_it() {
        let mut state = State {
            feature_level: ONE_DEPLOYMENT_SINCE - 1,
            ..State::default()
        };
        let shop = crate::ids::DeploymentName::new("shop").unwrap();
        let token = Arc::new(ApiToken {
            role: ApiRole::Deploy(shop.clone()),
            ..ApiToken::clone(&token(100, None))
        });
        let id: Arc<str> = "t-1".into();
        let refused = Refused::FeatureLevel { needed: 6, has: 5 };
        assert_eq!(issue(&mut state, &id, &token), Err(refused));
        assert!(state.api_tokens.is_empty());
        state.feature_level = ONE_DEPLOYMENT_SINCE;
        assert_eq!(issue(&mut state, &id, &token), Ok(()));
        assert_eq!(state.api_tokens[&id].role.deployment(), Some(&shop));
    }

    #[test]
    fn it_ends_at_its_second() {
        assert!(!token(100, Some(200)).is_expired(199));
        assert!(token(100, Some(200)).is_expired(200));
        assert!(!token(100, None).is_expired(i64::MAX));
    }

    #[test]
    fn there_are_only_so_many_and_expired_ones_make_room() {
        let mut state = State::default();
        for number in 0..State::API_TOKENS_MAX {
            let end = (number < 3).then_some(200);
            issue(&mut state, &format!("t-{number}").into(), &token(100, end)).unwrap();
        }
        let max = State::API_TOKENS_MAX;
        let refused = issue(&mut state, &"more".into(), &token(199, None));
        assert_eq!(refused, Err(Refused::TooManyApiTokens { max }));
        assert_eq!(state.api_tokens.len(), max, "a refusal changes nothing");
        issue(&mut state, &"more".into(), &token(200, None)).unwrap();
        assert_eq!(state.api_tokens.len(), max - 2);
    }
}
