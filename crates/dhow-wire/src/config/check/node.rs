//! What every node has, whatever its mode: socket, API address, labels, resources.

use dhow_core::spec::ByteSize;
use dhow_core::spec::check::limits::MEMORY_MIN_BYTES;
use dhow_core::spec::check::{FieldPath, SpecFinding};

use super::super::api_addr::ApiAddr;
use super::super::cluster_mode::ClusterMode;
use super::super::effective::Draft;
use super::check_labels;

/// The kernel's longest path of a Unix socket: 108 bytes with the closing zero byte.
const SOCKET_PATH_MAX_BYTES: usize = 107;

pub(super) fn check(draft: &Draft, findings: &mut Vec<SpecFinding>) {
    check_socket(draft, findings);
    check_api_addr(draft, findings);
    check_labels(&FieldPath::of("labels"), &draft.labels, findings);
    if let Some(ByteSize(bytes)) = draft.resources.memory
        && bytes < MEMORY_MIN_BYTES
    {
        let hint = match bytes {
            0 => "leave it out to offer what the host has".to_owned(),
            _ => format!("did you mean `{bytes}Gi`?"),
        };
        let message = format!("a node that offers {bytes} bytes of memory can run nothing");
        findings.push(SpecFinding::at(FieldPath::of("resources").key("memory"), message).hint(hint));
    }
}

fn check_socket(draft: &Draft, findings: &mut Vec<SpecFinding>) {
    let length = draft.socket_path().as_os_str().len();
    if length <= SOCKET_PATH_MAX_BYTES {
        return;
    }
    let (field, hint) = match draft.socket {
        Some(_) => ("socket", "choose a shorter one, such as `/run/dhow.sock`"),
        None => (
            "data_dir",
            "set `socket` to a shorter one, such as `/run/dhow.sock`",
        ),
    };
    findings.push(
        SpecFinding::at(
            FieldPath::of(field),
            format!(
                "the path of the socket has {length} bytes, the kernel takes at most {SOCKET_PATH_MAX_BYTES}"
            ),
        )
        .hint(hint),
    );
}

fn check_api_addr(draft: &Draft, findings: &mut Vec<SpecFinding>) {
    let at = FieldPath::of("api_addr");
    let addr = match draft.api_addr {
        None => return,
        Some(ApiAddr::At(addr)) => addr,
        Some(ApiAddr::Off) => {
            if draft.cluster.own_api_addr().is_some() {
                findings.push(
                    SpecFinding::at(
                        at,
                        "the other servers reach this one's API over TCP: it cannot be off",
                    )
                    .because(FieldPath::of("cluster"))
                    .hint("leave `api_addr` out: it is that of the own entry in `peers`"),
                );
            }
            return;
        }
    };
    if addr.port() == 0 {
        findings.push(
            SpecFinding::at(
                at,
                "the API cannot listen on the port 0: nobody would know where it is",
            )
            .hint("3669 is the default"),
        );
        return;
    }
    let is_single = matches!(draft.cluster, ClusterMode::SingleNode {});
    if is_single && draft.cluster_key_file.is_none() && !addr.ip().is_loopback() {
        findings.push(
            SpecFinding::at(at, format!("on {addr} others could reach the API, which a single node serves without TLS"))
                .because(FieldPath::of("cluster"))
                .because(FieldPath::of("cluster_key_file"))
                .hint(format!(
                    "use `127.0.0.1:{}`, or set `cluster_key_file`, which brings TLS and tokens (`dhow cluster keygen`)",
                    addr.port()
                )),
        );
    }
}
