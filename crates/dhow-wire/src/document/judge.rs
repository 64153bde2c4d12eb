//! From the findings of rules, which know paths, to findings with a place in the text.

use dhow_core::spec::check::SpecFinding;

use super::decoder::Decoder;
use super::finding::{Finding, Findings};
use super::node::Node;

/// Adds what the rules found to what reading found. A rule that rests on something that could not be read is
/// not heard: its finding would be about a stand-in.
pub fn findings_of(decoder: Decoder, root: &Node, judged: Vec<SpecFinding>) -> Findings {
    let source = decoder.source.clone();
    let is_sound = |finding: &SpecFinding| {
        !decoder.has_failed(&finding.path)
            && !finding
                .related
                .iter()
                .any(|related| decoder.has_failed(&related.path))
    };
    let sound: Vec<SpecFinding> = judged.into_iter().filter(is_sound).collect();
    let mut findings = decoder.into_findings();
    for judged in sound {
        if findings.is_full() {
            findings.count_only();
            continue;
        }
        let mut finding = Finding::at(&source, root.locate(&judged.path, judged.on_key), judged.message)
            .with_path(&judged.path);
        finding.hint = judged.hint;
        for related in judged.related {
            if let Some(note) = related.note {
                finding = finding.with_note(root.locate(&related.path, false), note);
            }
        }
        findings.add(finding);
    }
    findings
}
