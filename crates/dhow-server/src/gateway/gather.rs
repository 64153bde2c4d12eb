//! What waits for its message to the leader: several questions of nodes go together, as many as one message holds.

use dhow_wire::grpc::Refusal;
use tokio::sync::{mpsc, oneshot};

use super::limits::{FORWARD_BYTES_MAX, FORWARD_MAX};

/// The next that waits: the one that had no room in the last message, else the first of the queue.
pub(super) async fn next_of<T>(left_over: &mut Option<T>, queue: &mut mpsc::Receiver<T>) -> Option<T> {
    match left_over.take() {
        Some(first) => Some(first),
        None => queue.recv().await,
    }
}

/// What goes into one message together with the first that waits, and one that was taken and has no room in it.
pub(super) fn gather<T>(
    first: T,
    queue: &mut mpsc::Receiver<T>,
    bytes_of: impl Fn(&T) -> usize,
) -> (Vec<T>, Option<T>) {
    let mut size_bytes = bytes_of(&first);
    let mut gathered = vec![first];
    while gathered.len() < FORWARD_MAX
        && let Ok(next) = queue.try_recv()
    {
        size_bytes += bytes_of(&next);
        if size_bytes > FORWARD_BYTES_MAX {
            return (gathered, Some(next));
        }
        gathered.push(next);
    }
    (gathered, None)
}

/// All who asked are told the same.
pub(super) fn tell_all<T>(
    answers: impl Iterator<Item = oneshot::Sender<Result<T, Refusal>>>,
    refusal: &Refusal,
) {
    for answer in answers {
        let _ = answer.send(Err(refusal.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::limits::FORWARDED_MAX;

    #[test]
    fn one_message_holds_no_more_than_the_leader_takes() {
        let (sender, mut queue) = mpsc::channel(FORWARDED_MAX);
        let large = FORWARD_BYTES_MAX / 2;
        for (name, bytes) in [("b", 1), ("c", 2 * FORWARD_BYTES_MAX), ("d", large), ("e", large)] {
            sender.try_send((bytes, name)).unwrap();
        }
        let mut told = Vec::new();
        let mut first = Some((1, "a"));
        while let Some(next) = first.take().or_else(|| queue.try_recv().ok()) {
            let (gathered, left_over) = gather(next, &mut queue, |(bytes, _)| *bytes);
            told.push(gathered.iter().map(|(_, name)| *name).collect::<String>());
            first = left_over;
        }
        assert_eq!(told, ["ab", "c", "de"]);
        for _ in 0..=FORWARD_MAX {
            sender.try_send((1, "x")).unwrap();
        }
        let (gathered, left_over) = gather((1, "x"), &mut queue, |(bytes, _)| *bytes);
        assert_eq!((gathered.len(), left_over), (FORWARD_MAX, None));
    }
}
