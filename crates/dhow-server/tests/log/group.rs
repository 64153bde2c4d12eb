//! Requests that come in during an fdatasync go into one frame together.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use dhow_server::plane::log::store::{
    Batch, Disk, DiskOp, Entry, Op, SegmentStore, StoreError, StoreOptions, limits,
};

use super::support::{append, open, payload, read_all};

/// A disk whose commits wait until the test lets them through, once the gate is shut.
struct Gate {
    shut: Arc<AtomicBool>,
    /// Told when a commit is about to be made durable.
    reached: Receiver<()>,
    pass: Sender<()>,
}

fn gated() -> (Gate, StoreOptions) {
    let shut = Arc::new(AtomicBool::new(false));
    let (tell, reached) = channel();
    let (pass, passed) = channel::<()>();
    let inside = Arc::clone(&shut);
    let passed = Mutex::new(passed);
    let hook = move |op: DiskOp, path: &Path| {
        let is_segment = path.extension().is_some_and(|ending| ending == "log");
        if op == DiskOp::Sync && is_segment && inside.load(Ordering::SeqCst) {
            tell.send(()).unwrap();
            passed.lock().unwrap().recv().unwrap();
        }
        Ok(())
    };
    let options = StoreOptions {
        disk: Disk::with_hook(Arc::new(hook)),
        ..StoreOptions::default()
    };
    (Gate { shut, reached, pass }, options)
}

#[test]
fn sixty_four_callers_share_one_fdatasync() {
    const CALLERS: u64 = 64;
    let dir = tempfile::tempdir().unwrap();
    let (gate, options) = gated();
    let store = open(dir.path(), options);
    gate.shut.store(true, Ordering::SeqCst);
    let (answers, answered) = channel();
    let submit = |number: u64| {
        let answers = answers.clone();
        let done =
            Box::new(move |result: Result<_, StoreError>| answers.send((number, result.unwrap())).unwrap());
        store
            .submit(Batch::of(append(payload(number, 256))), done)
            .unwrap();
    };
    submit(0);
    gate.reached.recv().unwrap();
    // The first one is being made durable; everybody else comes now.
    (1..=CALLERS).for_each(submit);
    assert!(answered.try_recv().is_err(), "answered before it was durable");
    gate.shut.store(false, Ordering::SeqCst);
    gate.pass.send(()).unwrap();
    let acks: Vec<_> = (0..=CALLERS).map(|_| answered.recv().unwrap()).collect();
    for (number, (caller, ack)) in acks.iter().enumerate() {
        // In the order in which they came, the first alone, the rest together.
        assert_eq!((*caller, ack.first_index), (number as u64, number as u64));
        assert_eq!(ack.frame, if number == 0 { 1 } else { 2 });
    }
    assert_eq!(store.stats().frames, 2);
    assert_eq!(store.stats().entries, CALLERS + 1);
}

#[test]
fn a_refused_request_leaves_no_trace_in_the_frame_it_shares() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, options) = gated();
    let store = open(dir.path(), options);
    gate.shut.store(true, Ordering::SeqCst);
    let (answers, answered) = channel();
    let submit = |ops: Vec<Op>| {
        let answers = answers.clone();
        store
            .submit(
                Batch::new(ops),
                Box::new(move |result| answers.send(result).unwrap()),
            )
            .unwrap();
    };
    submit(vec![append(payload(0, 300))]);
    gate.reached.recv().unwrap();
    let far = Entry {
        index: 77,
        term: 1,
        payload: payload(9, 50),
    };
    submit(vec![append(payload(1, 300))]);
    // The first half of the batch would do, the second does not: neither stays.
    submit(vec![append(payload(8, 300)), Op::Append(far)]);
    submit(vec![append(payload(2, 300))]);
    gate.shut.store(false, Ordering::SeqCst);
    gate.pass.send(()).unwrap();
    let results: Vec<_> = (0..4).map(|_| answered.recv().unwrap()).collect();
    assert!(
        matches!(results[2], Err(StoreError::NotNext { expected: 3, got: 77 })),
        "{results:?}"
    );
    assert_eq!(
        results[1].as_ref().unwrap().frame,
        results[3].as_ref().unwrap().frame
    );
    drop(store);
    let entries = read_all(&open(dir.path(), StoreOptions::default()));
    let found: Vec<_> = entries.into_iter().map(|entry| entry.payload).collect();
    assert_eq!(
        found,
        (0..3).map(|number| payload(number, 300)).collect::<Vec<_>>()
    );
}

#[test]
fn threads_that_commit_at_once_lose_nothing_and_keep_their_order() {
    const THREADS: u64 = 64;
    const EACH: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), StoreOptions::default());
    let indexes: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = store.clone();
                scope.spawn(move || {
                    (0..EACH)
                        .map(|number| {
                            let bytes = payload(thread * EACH + number, 256);
                            store.commit(Batch::of(append(bytes))).unwrap().first_index
                        })
                        .collect()
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let frames = store.stats().frames;
    println!("{} appends in {frames} frames", THREADS * EACH);
    drop(store);
    let entries = read_all(&open(dir.path(), StoreOptions::default()));
    assert_eq!(entries.len() as u64, THREADS * EACH);
    for (thread, indexes) in indexes.iter().enumerate() {
        assert!(
            indexes.is_sorted(),
            "a later commit of one thread got an earlier index"
        );
        for (number, index) in indexes.iter().enumerate() {
            let wanted = payload(thread as u64 * EACH + number as u64, 256);
            assert_eq!(entries[*index as usize].payload, wanted);
        }
    }
}

#[test]
fn a_full_queue_is_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, options) = gated();
    let store = open(dir.path(), options);
    gate.shut.store(true, Ordering::SeqCst);
    let submit = |store: &SegmentStore| store.submit(Batch::of(append(payload(1, 8))), Box::new(|_| {}));
    submit(&store).unwrap();
    gate.reached.recv().unwrap();
    for _ in 0..limits::MAX_QUEUED_REQUESTS {
        submit(&store).unwrap();
    }
    assert!(matches!(
        submit(&store),
        Err(StoreError::Busy {
            requests: limits::MAX_QUEUED_REQUESTS,
            ..
        })
    ));
    gate.shut.store(false, Ordering::SeqCst);
    gate.pass.send(()).unwrap();
    drop(store);
    let entries = read_all(&open(dir.path(), StoreOptions::default()));
    assert_eq!(entries.len(), limits::MAX_QUEUED_REQUESTS + 1);
}

#[test]
fn queued_bytes_are_bounded_too() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, options) = gated();
    let store = open(dir.path(), options);
    gate.shut.store(true, Ordering::SeqCst);
    store
        .submit(Batch::of(append(payload(1, 8))), Box::new(|_| {}))
        .unwrap();
    gate.reached.recv().unwrap();
    let large = bytes::Bytes::from(vec![7; limits::MAX_RECORD_BYTES]);
    let submit = || store.submit(Batch::of(append(large.clone())), Box::new(|_| {}));
    let taken = (0..).take_while(|_| submit().is_ok()).count();
    assert_eq!(taken, limits::MAX_QUEUED_BYTES / limits::MAX_RECORD_BYTES - 1);
    assert!(matches!(submit(), Err(StoreError::Busy { .. })));
    gate.shut.store(false, Ordering::SeqCst);
    gate.pass.send(()).unwrap();
}

#[test]
fn what_is_too_large_is_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), StoreOptions::default());
    let above = bytes::Bytes::from(vec![1; limits::MAX_RECORD_BYTES + 1]);
    assert!(matches!(
        store.commit(Batch::of(append(above.clone()))),
        Err(StoreError::TooLarge { .. })
    ));
    let largest = above.slice(1..);
    let index = store
        .commit(Batch::of(append(largest.clone())))
        .unwrap()
        .first_index;
    let twice = Batch::new(vec![append(largest.clone()), append(largest.clone())]);
    assert!(matches!(store.commit(twice), Err(StoreError::TooLarge { .. })));
    drop(store);
    let store = open(dir.path(), StoreOptions::default());
    assert_eq!(store.read(index..index + 1, 0).unwrap()[0].payload, largest);
}
