//! The bytes of every form, in a file that a review shows. `DHOW_UPDATE_GOLDENS=1` writes it anew.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dhow_core::command::{ClusterCommand, Command, Entry, NodeCommand, PlanCommand};
use dhow_core::spec::VolumeSupport;
use dhow_core::state::{NodeInfo, State};
use dhow_core::stored::Form;

use super::samples;
use crate::log_form::{
    LogFormError, decode_entry, decode_snapshot, encode_entry, encode_snapshot, snapshot_term,
};

/// Bytes in one line of the file.
const ROW_BYTES: usize = 32;

const HEAD: &str = "\
# The bytes of one log entry of every command, and of a small snapshot, in hex.
# A difference here is a change of a stored form: it needs a new version number, unless no release has it.
# Written by DHOW_UPDATE_GOLDENS=1 cargo test -p dhow-wire log_form
";

fn current() -> Vec<(String, Vec<u8>)> {
    let mut forms: Vec<(String, Vec<u8>)> = samples::commands()
        .into_iter()
        .map(|command| {
            let name = samples::name_of(&command).to_owned();
            (
                name,
                encode_entry(&samples::entry(command), State::FEATURE_LEVEL).unwrap(),
            )
        })
        .collect();
    forms.push((
        "entry with a request id".to_owned(),
        encode_entry(&samples::entry_with_request(), State::FEATURE_LEVEL).unwrap(),
    ));
    forms.push((
        "report of settings".to_owned(),
        encode_entry(&samples::report_of_settings(), State::FEATURE_LEVEL).unwrap(),
    ));
    forms.push((
        "deployment with files".to_owned(),
        encode_entry(&samples::entry_with_files(), State::FEATURE_LEVEL).unwrap(),
    ));
    let mut snapshot = Vec::new();
    encode_snapshot(&samples::state(), &mut snapshot).unwrap();
    forms.push(("snapshot".to_owned(), snapshot));
    forms
}

fn render(forms: &[(String, Vec<u8>)]) -> String {
    let mut text = HEAD.to_owned();
    for (name, bytes) in forms {
        text.push_str(&format!("\n{name}\n"));
        for row in bytes.chunks(ROW_BYTES) {
            let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            text.push_str(&format!("  {}\n", hex.join(" ")));
        }
    }
    text
}

fn parse(text: &str) -> BTreeMap<String, Vec<u8>> {
    let mut forms: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut name = String::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        match line.strip_prefix("  ") {
            Some(hex) => {
                let bytes = hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap());
                forms.entry(name.clone()).or_default().extend(bytes);
            }
            None => name = line.to_owned(),
        }
    }
    forms
}

#[test]
fn the_bytes_are_those_of_the_goldens() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/log_form/golden.txt");
    let current = render(&current());
    if std::env::var_os("DHOW_UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(
        golden == current,
        "a stored form has changed; see the head of {}\n{current}",
        path.display()
    );
}

#[test]
fn the_goldens_can_be_read_back() {
    let golden = parse(include_str!("../golden.txt"));
    for command in samples::commands() {
        let bytes = &golden[samples::name_of(&command)];
        assert_eq!(decode_entry(bytes).unwrap(), samples::entry(command));
    }
    let bytes = &golden["entry with a request id"];
    assert_eq!(decode_entry(bytes).unwrap(), samples::entry_with_request());
    let bytes = &golden["report of settings"];
    assert_eq!(decode_entry(bytes).unwrap(), samples::report_of_settings());
    let bytes = &golden["deployment with files"];
    assert_eq!(decode_entry(bytes).unwrap(), samples::entry_with_files());
    let state = decode_snapshot(golden["snapshot"].as_slice()).unwrap();
    assert_eq!(state, samples::state());
    assert_eq!(state.hash(), samples::state().hash());
}

#[test]
fn form_one_is_read_and_written_again_as_it_was() {
    for (name, bytes) in parse(include_str!("../golden_form_1.txt")) {
        if name == "snapshot" {
            let state = decode_snapshot(bytes.as_slice()).unwrap();
            assert_eq!(state.feature_level, 1);
            let mut again = Vec::new();
            encode_snapshot(&state, &mut again).unwrap();
            assert!(again == bytes, "the snapshot of form 1 is not what it was");
            continue;
        }
        let entry = decode_entry(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let again = encode_entry(&entry, 1).unwrap();
        assert!(
            again == bytes,
            "{name} in form 1 is not what it was: a type that has grown needs a row in dhow_core::stored"
        );
    }
}

#[test]
fn forms_two_and_three_are_read_and_mean_the_same() {
    means_the_same(Form::Two, include_str!("../golden_form_2.txt"));
    means_the_same(Form::Three, include_str!("../golden_form_3.txt"));
}

#[test]
fn forms_four_to_seven_are_read_and_written_again_as_they_were() {
    written_again(Form::Four, 2, include_str!("../golden_form_4.txt"));
    written_again(Form::Five, 3, include_str!("../golden_form_5.txt"));
    written_again(Form::Six, 4, include_str!("../golden_form_6.txt"));
    written_again(Form::Seven, 5, include_str!("../golden_form_7.txt"));
}

fn written_again(form: Form, level: u32, text: &str) {
    let now = parse(include_str!("../golden.txt"));
    for (name, bytes) in parse(text) {
        assert_eq!(bytes[0], form.number());
        if name == "snapshot" {
            let state = decode_snapshot(bytes.as_slice()).unwrap();
            assert_eq!(state.feature_level, level);
            assert_eq!(state.requests, samples::state().requests);
            assert_eq!(state.nodes_max(), samples::state().nodes_max());
            let mut again = Vec::new();
            encode_snapshot(&state, &mut again).unwrap();
            assert!(again == bytes, "the snapshot of {form:?} is not what it was");
            continue;
        }
        let entry = decode_entry(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(entry, as_in(form, decode_entry(&now[&name]).unwrap()), "{name}");
        // The raising of the level is always in the newest form.
        let again = encode_entry(&entry, level).unwrap();
        assert!(
            again == bytes || name == "ClusterCommand::RaiseFeatureLevel",
            "{name} in {form:?} is not what it was: a type that has grown needs a row in dhow_core::stored"
        );
    }
}

/// What a command of now says without what the form does not have.
fn as_in(form: Form, entry: Entry) -> Entry {
    let mut entry = entry;
    let without_news = |info: &mut Arc<NodeInfo>| {
        let info = Arc::make_mut(info);
        if form < Form::Eight {
            let said = std::mem::take(&mut info.volumes);
            assert_ne!(said, VolumeSupport::Named, "the golden shows it");
        }
        if form < Form::Seven {
            assert!(std::mem::take(&mut info.runs_steps), "the golden shows it");
        }
        if form < Form::Six {
            assert!(std::mem::take(&mut info.mounts_files), "the golden shows it");
        }
        if form < Form::Five {
            assert!(info.mesh_addr.take().is_some(), "the golden shows it");
        }
    };
    match &mut entry.command {
        Command::Cluster(
            ClusterCommand::Bootstrap { nodes_limit, .. }
            | ClusterCommand::RaiseFeatureLevel { nodes_limit, .. },
        ) if form < Form::Four => assert!(nodes_limit.take().is_some(), "the golden shows it"),
        Command::Cluster(ClusterCommand::UseToken { info, .. })
        | Command::Node(NodeCommand::Register { info, .. }) => without_news(info),
        Command::Cluster(ClusterCommand::SetSource { settings, .. }) if form < Form::Eight => {
            assert!(settings.remote.take().is_some(), "the golden shows it");
            assert!(settings.max_age_secs.take().is_some(), "the golden shows it");
            assert!(settings.hook_secret.take().is_some(), "the golden shows it");
        }
        Command::Plan(PlanCommand::Fail { of_version, .. }) if form < Form::Seven => {
            assert!(std::mem::take(of_version), "the golden shows it");
        }
        Command::Cluster(_)
        | Command::Node(_)
        | Command::Deployment(_)
        | Command::Plan(_)
        | Command::Agent(_) => {}
    }
    if let Command::Cluster(ClusterCommand::Bootstrap { feature_level, .. }) = &mut entry.command {
        *feature_level = match form {
            Form::One | Form::Two | Form::Three | Form::Four => 2,
            Form::Five => 3,
            Form::Six => 4,
            Form::Seven => 5,
            Form::Eight => State::FEATURE_LEVEL,
        };
    }
    entry
}

fn means_the_same(form: Form, text: &str) {
    let now = parse(include_str!("../golden.txt"));
    for (name, bytes) in parse(text) {
        assert_eq!(bytes[0], form.number());
        if name == "snapshot" {
            let state = decode_snapshot(bytes.as_slice()).unwrap();
            assert_eq!(state.cluster_id, samples::state().cluster_id);
            assert_eq!(state.nodes.len(), samples::state().nodes.len());
            assert_eq!(state.requests, samples::state().requests);
            assert!(
                state.nodes_max() < samples::state().nodes_max(),
                "it has no number yet"
            );
            continue;
        }
        let entry = decode_entry(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let now = as_in(form, decode_entry(&now[&name]).unwrap());
        assert_eq!(entry, now, "{name}");
    }
}

#[test]
fn what_form_one_does_not_have_is_refused_at_level_one_but_for_the_raising_of_the_level() {
    let old = parse(include_str!("../golden_form_1.txt"));
    for command in samples::commands() {
        let name = samples::name_of(&command);
        let encoded = encode_entry(&samples::entry(command), 1);
        match (name, old.contains_key(name)) {
            ("ClusterCommand::RaiseFeatureLevel", _) => {
                assert_eq!(encoded.unwrap()[0], Form::NEWEST.number())
            }
            // What the first version had is written again by the test above; its cases may have grown since.
            (_, true) => {}
            (_, false) => assert!(
                matches!(encoded, Err(LogFormError::OlderServers { .. })),
                "{name} is new: its enum needs a row in dhow_core::stored"
            ),
        }
    }
}

#[test]
fn every_command_and_every_event_has_a_sample() {
    let names: Vec<_> = samples::commands().iter().map(samples::name_of).collect();
    assert_eq!(names, samples::all_names());
    let kinds: Vec<_> = samples::events().iter().map(|event| event.kind()).collect();
    assert_eq!(kinds, dhow_core::replica::EventKind::ALL);
}

#[test]
fn the_term_of_a_snapshot_is_read_from_its_beginning_in_every_form() {
    let one = parse(include_str!("../golden_form_1.txt"));
    let two = parse(include_str!("../golden_form_2.txt"));
    let three = parse(include_str!("../golden_form_3.txt"));
    let four = parse(include_str!("../golden_form_4.txt"));
    let five = parse(include_str!("../golden_form_5.txt"));
    let six = parse(include_str!("../golden.txt"));
    for forms in [one, two, three, four, five, six] {
        let bytes = &forms["snapshot"];
        let state = decode_snapshot(bytes.as_slice()).unwrap();
        assert!(state.term.0 > 0, "it shows something");
        assert_eq!(snapshot_term(bytes.as_slice()).unwrap(), state.term.0);
    }
    assert!(snapshot_term([9, 0, 0].as_slice()).is_err());
    assert!(snapshot_term([].as_slice()).is_err());
}
