//! Framing, rotation, tails and positions, with real files in a temporary folder.

use std::path::Path;

use dhow_disk::Dir;

use super::*;

const SMALL: LogLimits = LogLimits {
    file_max_bytes: 4096,
    files_max: 3,
};

fn texts(page: &LogPage) -> Vec<&str> {
    page.lines.iter().map(|line| line.text.as_str()).collect()
}

fn read_all(dir: &Path, from: LogPosition) -> (Vec<LogLine>, LogPosition) {
    let dir = LogDir::new(dir.to_owned());
    let (mut lines, mut at) = (Vec::new(), from);
    loop {
        let page = dir.page(at, &LogFilter::default()).unwrap();
        lines.extend(page.lines);
        at = page.next;
        if page.at_end {
            return (lines, at);
        }
    }
}

#[test]
fn a_record_is_stored_as_documented() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(Dir::open(dir.path()).unwrap(), LogLimits::default()).unwrap();
    writer.append(Stream::Stdout, b"one\ntw", 1_731_700_000_123_456);
    writer.append(Stream::Stderr, b"bad\n", 1_731_700_000_123_457);
    writer.append(Stream::Stdout, b"o\nrest", 1_731_700_000_123_458);
    writer.flush_partial(1_731_700_000_123_459);
    writer.append(Stream::Stdout, b"!", 1_731_700_000_123_460);
    writer.close(Stream::Stdout, 1_731_700_000_123_460);
    writer.notice("gone", 5);
    let stored = std::fs::read_to_string(dir.path().join("00000001.log")).unwrap();
    assert_eq!(
        stored,
        "1731700000123456 o. one\n1731700000123457 e. bad\n1731700000123458 o. two\n\
         1731700000123459 o+ rest\n1731700000123460 o. !\n0000000000000005 !. gone\n"
    );
}

#[test]
fn long_lines_come_in_pieces_and_empty_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(Dir::open(dir.path()).unwrap(), LogLimits::default()).unwrap();
    let mut bytes = vec![b'x'; LINE_MAX_BYTES + 5];
    bytes.extend_from_slice(b"\n\n\xff\n");
    writer.append(Stream::Stdout, &bytes, 7);
    let (lines, _) = read_all(dir.path(), LogPosition::default());
    let shape: Vec<(usize, bool)> = lines.iter().map(|line| (line.text.len(), line.partial)).collect();
    assert_eq!(
        shape,
        [(LINE_MAX_BYTES, true), (5, false), (0, false), (3, false)]
    );
    assert_eq!(lines[3].text, "\u{fffd}");
}

#[test]
fn rotation_keeps_the_newest_and_a_follower_misses_nothing_that_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(Dir::open(dir.path()).unwrap(), SMALL).unwrap();
    let (mut seen, mut at) = (Vec::new(), LogPosition::default());
    for n in 0..1000u32 {
        writer.append(Stream::Stdout, format!("line {n}\n").as_bytes(), u64::from(n));
        if n % 50 == 0 {
            let (lines, next) = read_all(dir.path(), at);
            seen.extend(lines.into_iter().map(|line| line.text));
            at = next;
        }
    }
    let (lines, _) = read_all(dir.path(), at);
    seen.extend(lines.into_iter().map(|line| line.text));
    let expected: Vec<String> = (0..1000).map(|n| format!("line {n}")).collect();
    assert_eq!(seen, expected);
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 3);
    let size: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= 3 * 4096, "{size}");
    // A position in a file that is gone leads to the oldest that is kept, and says so.
    let page = LogDir::new(dir.path().into())
        .page(
            LogPosition {
                file: 1,
                offset_bytes: 10,
            },
            &LogFilter::default(),
        )
        .unwrap();
    assert!(page.files_missed > 0);
    assert!(!page.lines.is_empty());
}

#[test]
fn tails_reach_across_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(Dir::open(dir.path()).unwrap(), SMALL).unwrap();
    for n in 0..300u32 {
        writer.append(Stream::Stdout, format!("line {n}\n").as_bytes(), u64::from(n));
    }
    let log = LogDir::new(dir.path().into());
    for wanted in [0, 1, 2, 50, 130, 200] {
        let from = log.locate_tail(wanted).unwrap();
        let (lines, _) = read_all(dir.path(), from);
        assert_eq!(lines.len(), wanted, "tail of {wanted}");
        if wanted > 0 {
            assert_eq!(lines[0].text, format!("line {}", 300 - wanted));
        }
    }
    let from = log.locate_tail(1_000_000).unwrap();
    let (lines, _) = read_all(dir.path(), from);
    assert_eq!(lines.last().unwrap().text, "line 299");
    assert_eq!(lines.len(), 300);
    assert_eq!(
        LogDir::new(dir.path().join("none")).locate_tail(5).unwrap(),
        LogPosition::default()
    );
}

#[test]
fn a_page_is_bounded_and_the_next_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(Dir::open(dir.path()).unwrap(), LogLimits::default()).unwrap();
    let line = format!("{}\n", "y".repeat(1000));
    for n in 0..2000 {
        writer.append(Stream::Stderr, line.as_bytes(), n);
    }
    let log = LogDir::new(dir.path().into());
    let page = log.page(LogPosition::default(), &LogFilter::default()).unwrap();
    assert!(!page.at_end);
    assert!(page.lines.len() * 1000 <= PAGE_MAX_BYTES + LINE_MAX_BYTES);
    let (lines, _) = read_all(dir.path(), LogPosition::default());
    assert_eq!(lines.len(), 2000);
    let filter = LogFilter {
        since_us: Some(1500),
        until_us: Some(1502),
        stream: Some(Stream::Stderr),
    };
    let mut at = LogPosition::default();
    let mut found = Vec::new();
    loop {
        let page = log.page(at, &filter).unwrap();
        found.extend(page.lines.into_iter().map(|line| line.at_us));
        at = page.next;
        if page.at_end {
            break;
        }
    }
    assert_eq!(found, [1500, 1501]);
}

#[test]
fn a_torn_end_and_damage_are_stepped_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000004.log");
    std::fs::write(
        &path,
        b"0000000000000001 o. fine\n\0\0garbage\n0000000000000002 o. half",
    )
    .unwrap();
    let log = LogDir::new(dir.path().into());
    let page = log.page(LogPosition::default(), &LogFilter::default()).unwrap();
    assert_eq!(texts(&page), ["fine"]);
    assert!(page.at_end);
    assert_eq!(page.files_missed, 0);
    // A writer that goes on here first ends the torn record; the follower reads on behind it.
    let mut writer = LogWriter::open(Dir::open(dir.path()).unwrap(), LogLimits::default()).unwrap();
    writer.append(Stream::Stdout, b"new\n", 3);
    assert_eq!(
        texts(&log.page(page.next, &LogFilter::default()).unwrap()),
        ["half", "new"]
    );
}

#[test]
fn a_full_disk_costs_lines_and_says_how_many() {
    // A file limit stands for the disk: writes behind it fail, here by making the file unwritable through
    // a folder in the place of the next one.
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(Dir::open(dir.path()).unwrap(), SMALL).unwrap();
    std::fs::create_dir(dir.path().join("00000002.log")).unwrap();
    let line = format!("{}\n", "z".repeat(3000));
    writer.append(Stream::Stdout, line.as_bytes(), 1);
    writer.append(Stream::Stdout, line.as_bytes(), 2);
    writer.append(Stream::Stdout, b"also lost\n", 3);
    // Room again: the next number is free.
    std::fs::remove_dir(dir.path().join("00000002.log")).unwrap();
    writer.append(Stream::Stdout, b"back\n", 4);
    let (lines, _) = read_all(dir.path(), LogPosition::default());
    let notices: Vec<&LogLine> = lines
        .iter()
        .filter(|line| line.stream == Stream::Notice)
        .collect();
    assert_eq!(notices.len(), 1, "{lines:?}");
    assert!(
        notices[0]
            .text
            .starts_with("2 records (3051 bytes) of output were lost: "),
        "{}",
        notices[0].text
    );
    assert_eq!(lines.last().unwrap().text, "back");
}

#[tokio::test]
async fn memory_and_files_answer_alike() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(Dir::open(dir.path()).unwrap(), LogLimits::default()).unwrap();
    let memory = MemoryLog::default();
    for n in 0..20u64 {
        writer.append(Stream::Stdout, format!("{n}\n").as_bytes(), n);
        memory.push(LogLine {
            at_us: n,
            stream: Stream::Stdout,
            text: n.to_string(),
            partial: false,
        });
    }
    for source in [
        LogSource::Files(LogDir::new(dir.path().into())),
        LogSource::Memory(memory),
    ] {
        let tail: Vec<u64> = source
            .tail(3)
            .await
            .unwrap()
            .into_iter()
            .map(|line| line.at_us)
            .collect();
        assert_eq!(tail, [17, 18, 19]);
        let mut follow = source.follow(source.locate_tail(1).await.unwrap(), LogFilter::default());
        assert_eq!(texts(&follow.next_page().await.unwrap()), ["19"]);
    }
}
