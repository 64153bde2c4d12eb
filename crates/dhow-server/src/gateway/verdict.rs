//! What the answer to a node's call says about the caller. HTTP calls every answer of gRPC a success.

use axum::http::HeaderMap;
use tonic::{Code, Status};

/// What a node's call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What it showed was good.
    Granted,
    /// It is refused for what it showed, or did not show.
    Refused(&'static str),
    /// Nothing is known about it: it called what there is not, or the server was busy.
    Unknown,
}

/// The verdict of an answer whose HTTP status is a success.
pub(crate) fn of_headers(headers: &HeaderMap) -> Verdict {
    let Some(status) = Status::from_header_map(headers) else {
        return Verdict::Granted;
    };
    match status.code() {
        Code::Ok => Verdict::Granted,
        Code::Unauthenticated => Verdict::Refused("a worker's token was refused"),
        Code::PermissionDenied => Verdict::Refused("a node may not do what it asked for"),
        Code::NotFound => Verdict::Refused("the cluster does not know this node, or has removed it"),
        Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use dhow_wire::grpc::Refusal;

    use super::*;

    #[test]
    fn only_an_answer_without_a_refusal_is_granted() {
        let verdict = |refusal: Refusal| {
            let response = refusal.to_status().into_http::<axum::body::Body>();
            assert!(response.status().is_success(), "HTTP tells them not apart");
            of_headers(response.headers())
        };
        assert_eq!(of_headers(&HeaderMap::new()), Verdict::Granted);
        for refused in [
            Refusal::Credential("no".into()),
            Refusal::Identity("no".into()),
            Refusal::UnknownNode,
        ] {
            assert!(matches!(verdict(refused), Verdict::Refused(_)));
        }
        for unknown in [Refusal::Busy, Refusal::TooOften, Refusal::Malformed("x".into())] {
            assert_eq!(verdict(unknown), Verdict::Unknown);
        }
        let missing = Status::unimplemented("").into_http::<axum::body::Body>();
        assert_eq!(of_headers(missing.headers()), Verdict::Unknown);
    }
}
