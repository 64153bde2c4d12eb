//! The JSON that clients rely on, and frames that come in pieces.

use super::*;
use crate::stabilization::ServiceHealthSummary;
use crate::status::DeploymentState;

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn bodies_have_the_keys_that_clients_read() {
    let progress = Progress {
        deployment: "shop".into(),
        revision: 2,
        state: DeploymentState::Deploying,
        services: vec![ServiceProgress {
            name: "web".into(),
            desired: 2,
            pulling: Some(PullingProgress {
                replicas: 1,
                done_bytes: 10,
                total_bytes: None,
            }),
            ..ServiceProgress::default()
        }],
    };
    assert_eq!(
        json(&progress),
        r#"{"deployment":"shop","revision":2,"state":"deploying","services":[{"name":"web","running":0,"desired":2,"healthy":false,"healthy_count":0,"pending":0,"pulling":{"replicas":1,"done_bytes":10},"starting":0,"failed":0,"outdated":0}]}"#
    );
    let result = ProgressResult {
        outcome: ProgressOutcome::TimedOut,
        message: "late".into(),
        services: vec![ServiceHealthSummary::default()],
        served: Vec::new(),
    };
    assert!(json(&result).starts_with(r#"{"outcome":"timed_out","message":"late","services":[{"name":"""#));
    assert_eq!(json(&RestartRequest::default()), "{}");
    let scale: ScaleRequest =
        serde_json::from_str(r#"{"changes":[{"service":"web","replicas":3}]}"#).unwrap();
    assert_eq!(scale.changes[0].role, None);
    assert!(serde_json::from_str::<RollbackRequest>(r#"{"To":3}"#).is_err());
}

#[test]
fn frames_come_in_pieces_and_too_long_ones_are_refused() {
    let frames = [
        ExecServerFrame::Stdout(b"hello".to_vec()),
        ExecServerFrame::Stderr(Vec::new()),
        ExecServerFrame::Exit(ExecExit::Code(3)),
    ];
    let bytes: Vec<u8> = frames.iter().flat_map(ExecServerFrame::encode).collect();
    let mut read = Vec::new();
    let mut buffer = Vec::new();
    for byte in bytes {
        buffer.push(byte);
        while let Some((frame, taken)) = ExecServerFrame::decode(&buffer).unwrap() {
            buffer.drain(..taken);
            read.push(frame);
        }
    }
    assert_eq!(read, frames);
    let long = [0, 1, 0, 1, 0];
    assert_eq!(
        ExecClientFrame::decode(&long),
        Err(ExecFrameError::TooLong(65_537))
    );
    assert_eq!(
        ExecClientFrame::decode(&[7, 0, 0, 0, 0]),
        Err(ExecFrameError::Kind(7))
    );
    let size = TerminalSize { rows: 50, cols: 300 };
    let resized = ExecClientFrame::Resize(size);
    assert_eq!(resized.encode(), [2, 4, 0, 0, 0, 50, 0, 44, 1]);
    assert_eq!(ExecClientFrame::decode(&resized.encode()), Ok(Some((resized, 9))));
    assert_eq!(
        ExecClientFrame::decode(&[2, 1, 0, 0, 0, 7]),
        Err(ExecFrameError::Size)
    );
    for (term, is_good) in [
        ("xterm-256color", true),
        ("", false),
        ("a b", false),
        ("x\u{1b}", false),
    ] {
        assert_eq!(is_term(term), is_good, "{term:?}");
    }
    assert_eq!(
        ExecServerFrame::decode(&[3, 1, 0, 0, 0, b'x']),
        Err(ExecFrameError::Exit)
    );
    assert_eq!(json(&ExecExit::Error("gone".into())), r#"{"error":"gone"}"#);
}
