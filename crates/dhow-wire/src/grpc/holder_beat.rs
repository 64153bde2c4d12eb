//! What holders and the leader tell each other, to the core's types and back.

use dhow_core::ids::{NodeId, Term};
use dhow_core::lease::{Echo, FreshServer, HolderBeat, HolderBeatAnswer, LastSign, SessionId};
use prost::Message;

use super::proto;

pub fn to_session(id: SessionId) -> proto::SessionId {
    proto::SessionId {
        term: id.term.0,
        number: id.number,
    }
}

pub fn from_session(id: proto::SessionId) -> SessionId {
    SessionId {
        term: Term(id.term),
        number: id.number,
    }
}

fn to_sign(sign: &LastSign) -> proto::LastSign {
    proto::LastSign {
        node_id: sign.node.0,
        session: Some(to_session(sign.session)),
        age_ms: sign.age_ms,
    }
}

fn from_sign(sign: proto::LastSign) -> LastSign {
    LastSign {
        node: NodeId(sign.node_id),
        session: from_session(sign.session.unwrap_or_default()),
        age_ms: sign.age_ms,
    }
}

pub fn to_beat(beat: &HolderBeat) -> proto::HolderBeat {
    proto::HolderBeat {
        boot: beat.boot,
        seq: beat.seq,
        echo_stamp_ms: beat.echo.map(|echo| echo.stamp_ms),
        echo_since_ms: beat.echo.map_or(0, |echo| echo.since_ms),
        is_full: beat.is_full,
        heard: beat.heard.iter().map(to_sign).collect(),
        broke: beat.broke.iter().map(to_sign).collect(),
        ended: beat.ended.iter().map(to_sign).collect(),
        applied_index: beat.applied_index,
        is_fresh: beat.is_fresh,
        hears_age_ms: beat.hears_age_ms,
    }
}

pub fn from_beat(beat: proto::HolderBeat) -> HolderBeat {
    HolderBeat {
        boot: beat.boot,
        seq: beat.seq,
        echo: beat.echo_stamp_ms.map(|stamp_ms| Echo {
            stamp_ms,
            since_ms: beat.echo_since_ms,
        }),
        is_full: beat.is_full,
        heard: beat.heard.into_iter().map(from_sign).collect(),
        broke: beat.broke.into_iter().map(from_sign).collect(),
        ended: beat.ended.into_iter().map(from_sign).collect(),
        applied_index: beat.applied_index,
        is_fresh: beat.is_fresh,
        hears_age_ms: beat.hears_age_ms,
    }
}

pub fn to_answer(answer: &HolderBeatAnswer) -> proto::HolderBeatAnswer {
    let end = answer.end.iter().map(|(node, session)| LastSign {
        node: *node,
        session: *session,
        age_ms: 0,
    });
    proto::HolderBeatAnswer {
        term: answer.term.0,
        seq: answer.seq,
        stamp_ms: answer.stamp_ms,
        read_index: answer.read_index,
        ttl_secs: answer.ttl_secs,
        is_full_wanted: answer.is_full_wanted,
        end: end.map(|sign| to_sign(&sign)).collect(),
        servers: answer.servers.iter().map(to_server).collect(),
    }
}

pub fn from_answer(answer: proto::HolderBeatAnswer) -> HolderBeatAnswer {
    let end = answer.end.into_iter().map(from_sign);
    HolderBeatAnswer {
        term: Term(answer.term),
        seq: answer.seq,
        stamp_ms: answer.stamp_ms,
        read_index: answer.read_index,
        ttl_secs: answer.ttl_secs,
        is_full_wanted: answer.is_full_wanted,
        end: end.map(|sign| (sign.node, sign.session)).collect(),
        servers: answer.servers.into_iter().map(from_server).collect(),
    }
}

fn to_server(fresh: &FreshServer) -> proto::FreshServer {
    proto::FreshServer {
        server_id: fresh.server.0,
        fresh_for_ms: fresh.fresh_for_ms,
    }
}

fn from_server(fresh: proto::FreshServer) -> FreshServer {
    FreshServer {
        server: NodeId(fresh.server_id),
        fresh_for_ms: fresh.fresh_for_ms,
    }
}

/// How long a report is on its way to the leader.
pub fn held_report_bytes(report: &proto::HeldReport) -> usize {
    report.encoded_len()
}

/// How long what a node wants a session with is on its way to the leader.
pub fn open_session_bytes(session: &proto::OpenSession) -> usize {
    session.encoded_len()
}

/// Leaves out the open rollouts of those answers that go beyond so many bytes: each node is told of them again with its
/// next heartbeat.
pub fn fit_acks(acks: &mut [proto::HeldAck], bytes_max: usize) {
    let mut size_bytes = 0;
    for held in acks {
        let before_bytes = size_bytes;
        size_bytes += held.encoded_len();
        if size_bytes > bytes_max
            && let Some(proto::held_ack::Outcome::Ack(ack)) = &mut held.outcome
        {
            ack.bootstrap.clear();
            size_bytes = before_bytes + held.encoded_len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(node: u64) -> LastSign {
        LastSign {
            node: NodeId(node),
            session: SessionId {
                term: Term(3),
                number: node + 1,
            },
            age_ms: node + 2,
        }
    }

    #[test]
    fn answers_without_room_for_their_rollouts_come_without_them() {
        let ack = |seq| proto::HeldAck {
            outcome: Some(proto::held_ack::Outcome::Ack(proto::StatusAck {
                durable_seq: Some(seq),
                bootstrap: vec![proto::OpenRollout {
                    spec_json: vec![vec![7; 400]],
                    ..proto::OpenRollout::default()
                }],
                ..proto::StatusAck::default()
            })),
        };
        let mut acks = vec![ack(1), ack(2), ack(3)];
        fit_acks(&mut acks, 900);
        let told = |held: &proto::HeldAck| match &held.outcome {
            Some(proto::held_ack::Outcome::Ack(ack)) => (ack.durable_seq, ack.bootstrap.len()),
            other => panic!("{other:?}"),
        };
        let told: Vec<_> = acks.iter().map(told).collect();
        assert_eq!(told, [(Some(1), 1), (Some(2), 1), (Some(3), 0)]);
    }

    #[test]
    fn everything_comes_back_as_it_was() {
        let beat = HolderBeat {
            boot: 1,
            seq: 2,
            echo: Some(Echo {
                stamp_ms: 3,
                since_ms: 4,
            }),
            is_full: true,
            heard: vec![sign(10), sign(11)],
            broke: vec![sign(12)],
            ended: vec![sign(13)],
            applied_index: Some(14),
            is_fresh: true,
            hears_age_ms: Some(15),
        };
        assert_eq!(from_beat(to_beat(&beat)), beat);
        let none = HolderBeat::default();
        assert_eq!(from_beat(to_beat(&none)), none);
        let answer = HolderBeatAnswer {
            term: Term(5),
            seq: 6,
            stamp_ms: 7,
            read_index: 8,
            ttl_secs: 9,
            is_full_wanted: true,
            end: vec![(NodeId(1), sign(1).session)],
            servers: vec![FreshServer {
                server: NodeId(2),
                fresh_for_ms: 3,
            }],
        };
        assert_eq!(from_answer(to_answer(&answer)), answer);
    }
}
