//! Whatever is thrown at the readers gives findings or a value, never a panic, and what is written reads back.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use dhow_wire::{Sender, parse_config, parse_deployment, parse_deployment_under, write_deployment};

/// A small generator of its own, so that a seed means the same files for ever.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// What a slip of the keyboard, a broken editor or an attacker puts into a file.
const PIECES: &[&str] = &[
    ":",
    ": ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\n",
    "\t",
    "  ",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "!x ",
    "|\n",
    ">",
    "?",
    "%",
    "---\n",
    "...\n",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "日本",
    "🚀",
    "null",
    "~",
    "true",
    "-1",
    "18446744073709551616",
    "1e309",
    ".nan",
    "0x",
    "$E:",
    "$S:",
    "$E:X",
    "services:",
    "image:",
    "mode: ",
    "\\",
    "\r\n",
    "scale: { mode: fixed }",
    "replica_groups: [{}]",
    "peers: [{}]",
    "cluster:",
    "\u{85}",
    "\u{2028}",
];

fn mutated(text: &str, edits: usize, seeded: &mut Seeded) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..edits {
        let at = seeded.below(chars.len() + 1);
        match seeded.below(5) {
            0 => {
                let piece = PIECES[seeded.below(PIECES.len())];
                chars.splice(at..at, piece.chars());
            }
            1 => {
                let end = (at + 1 + seeded.below(20)).min(chars.len());
                chars.drain(at..end);
            }
            2 => {
                let end = (at + 1 + seeded.below(60)).min(chars.len());
                let piece: Vec<char> = chars[at..end].to_vec();
                let to = seeded.below(chars.len() + 1);
                chars.splice(to..to, piece);
            }
            3 => chars.truncate(at.max(1)),
            _ => {
                if let Some(c) = chars.get_mut(at) {
                    *c = char::from((seeded.next() % 128) as u8);
                }
            }
        }
    }
    chars.into_iter().collect()
}

/// The texts of the goldens whose names start so.
fn inputs(prefix: &str) -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let is_input = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_config = name.starts_with("config-") && !prefix.starts_with("config-");
        !name.ends_with(".out") && name.starts_with(prefix) && !is_config
    };
    let inputs: Vec<String> = paths
        .into_iter()
        .filter(is_input)
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert!(!inputs.is_empty(), "no inputs start with {prefix:?}");
    inputs
}

/// How many files of each kind; the long rounds take a hundred times as many.
fn rounds() -> usize {
    if std::env::var_os("DHOW_TEST_LONG").is_some() {
        50_000
    } else {
        500
    }
}

#[test]
fn mutated_files_never_panic() {
    // Half of them are a file that is fine with one edit.
    let (fine_ones, all) = (inputs("ok-"), inputs(""));
    let configs = inputs("config-");
    let mut seeded = Seeded(0x5eed_0001);
    let (mut fine, mut refused) = (0, 0);
    for round in 0..rounds() {
        let (from, edits) = if round % 2 == 0 {
            (&fine_ones, 1)
        } else {
            (&all, 1 + seeded.below(6))
        };
        let text = mutated(&from[round / 2 % from.len()], edits, &mut seeded);
        match parse_deployment(&text, "fuzz.yaml", &|_| Some("value".into())) {
            Ok(spec) => {
                fine += 1;
                assert_eq!(read_back(&spec), spec, "round {round}:\n{text}");
            }
            Err(findings) => {
                refused += 1;
                assert!(findings.count() > 0);
                assert!(!findings.to_string().is_empty());
            }
        }
        let edits = 1 + seeded.below(6);
        let text = mutated(&configs[round % configs.len()], edits, &mut seeded);
        if let Err(findings) = parse_config(&text, "fuzz.yaml") {
            assert!(findings.count() > 0);
            assert!(!findings.to_string().contains('\u{1b}'), "round {round}:\n{text}");
        }
    }
    // The mutations are neither harmless nor always fatal, or this would prove nothing.
    assert!(fine > 5 && refused > 50, "{fine} fine, {refused} refused");
}

fn read_back(spec: &dhow_core::spec::DeploymentSpec) -> dhow_core::spec::DeploymentSpec {
    let json = write_deployment(spec).unwrap().to_string();
    match parse_deployment_under(&json, "written.json", Sender::Caller, &|_| Vec::new()) {
        Ok(spec) => spec,
        Err(findings) => panic!("what was written is refused:\n{findings}\n{json}"),
    }
}

#[test]
fn what_is_written_reads_back() {
    for text in inputs("") {
        if let Ok(spec) = parse_deployment(&text, "ok.yaml", &|_| Some("value".into())) {
            assert_eq!(read_back(&spec), spec);
            let lenient: dhow_core::spec::DeploymentSpec =
                serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
            assert_eq!(lenient, spec);
        }
    }
}

fn peers(count: u64) -> String {
    let peer = |id: u64| {
        format!(
            "  - {{ id: {id}, api_addr: '10.{}.{}.{}:3669' }}\n",
            id >> 16,
            (id >> 8) & 255,
            id & 255
        )
    };
    let list: String = (1..=count).map(peer).collect();
    format!("cluster:\n  mode: static\n  node_id: 1\n  peers:\n{list}")
}

#[test]
fn ten_thousand_peers() {
    assert!(parse_config(&peers(10_000), "big.yaml").is_ok());
    let twice = format!(
        "{}{}",
        peers(10_000),
        "  - { id: 77, api_addr: '10.0.0.77:3669' }\n"
    );
    let findings = parse_config(&twice, "big.yaml").unwrap_err();
    assert_eq!(findings.count(), 2, "{findings}");
    let same = peers(1) + &"  - { id: 1, api_addr: '10.0.0.1:3669' }\n".repeat(10_000);
    assert_eq!(parse_config(&same, "big.yaml").unwrap_err().count(), 20_000);
}

#[test]
fn labels_of_a_megabyte() {
    let long = "x".repeat(1 << 20);
    for text in [
        format!("labels: {{ a: {long} }}"),
        format!("labels: {{ ? {long} : b }}"),
        format!("{long}: b"),
    ] {
        let findings = parse_config(&text, "big.yaml").unwrap_err();
        assert_eq!(findings.count(), 1);
        let shown = findings.to_string();
        assert!(shown.len() < 2_000, "{} bytes", shown.len());
    }
}

#[test]
fn a_long_chain_of_services_needs_no_stack() {
    let count = 10_000;
    let service = |at: usize| {
        format!(
            "  s{at}: {{ image: x, depends: [{{ service: s{} }}] }}\n",
            (at + 1) % count
        )
    };
    let services: String = (0..count).map(service).collect();
    let text = format!("version: v1\ndeployment: chain\nservices:\n{services}");
    let findings = parse_deployment(&text, "chain.yaml", &|_| None).unwrap_err();
    assert_eq!(findings.count(), 1);
    assert!(findings.to_string().contains("s0 → s1 → s2"));
}

#[test]
fn what_could_not_be_read_is_not_judged() {
    // The image has a slip in its name: that is the one finding, not also that an image is missing.
    let text = "version: v1\ndeployment: one\nservices:\n  web: { imgae: nginx, hostname: a }\n";
    assert_eq!(
        parse_deployment(text, "one.yaml", &|_| None).unwrap_err().count(),
        1
    );
    // A bad port of one endpoint does not hide that two others clash.
    let text = "version: v1\ndeployment: two\nservices:\n  web:\n    image: x\n    endpoints:\n\
                \x20     - { name: a, protocol: tcp, port: x }\n\
                \x20     - { name: b, protocol: tcp, port: 80 }\n\
                \x20     - { name: c, protocol: tcp, port: 80 }\n";
    let findings = parse_deployment(text, "two.yaml", &|_| None).unwrap_err();
    let places: Vec<Option<u32>> = findings.list().iter().map(|finding| finding.line).collect();
    assert_eq!(places, [Some(7), Some(9)]);
}

/// A command of this version may be talking with a server of one that knows fewer fields.
#[test]
fn what_readers_fill_in_by_themselves_is_not_sent() {
    let sent = |fields: &str| {
        let text = format!("version: v1\ndeployment: shop\nservices:\n  a:\n{fields}");
        let spec = parse_deployment(&text, "a.yaml", &|_| None).unwrap();
        let json = write_deployment(&spec).unwrap();
        let again = parse_deployment(&json.to_string(), "sent", &|_| None).unwrap();
        assert_eq!(again, spec);
        json["services"]["a"]
            .get("no_new_privileges")
            .map(ToString::to_string)
    };
    let process = "    runtime: process\n    command: [a]\n";
    let container = "    image: a:1\n";
    for plain in [process, container] {
        assert_eq!(sent(plain), None);
        assert_eq!(sent(&format!("{plain}    no_new_privileges: true\n")), None);
        let off = format!("{plain}    no_new_privileges: false\n");
        assert_eq!(sent(&off).as_deref(), Some("false"));
    }
    assert_eq!(sent(&format!("{container}    privileged: true\n")), None);
}
