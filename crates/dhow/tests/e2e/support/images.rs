//! Images made from programs of this host, as an OCI layout in a test's folder.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Busybox under all its names, and what `extra` copies into the root below `$R`. `libs FILE…` copies the libraries of
/// programs there.
const MAKE: &str = r#"set -e
R=roots/$TAG; mkdir -p $R/bin $R/tmp $R/etc $R/proc $R/sys $R/dev; chmod 1777 $R/tmp
cp "$(command -v busybox)" $R/bin/; chroot $R /bin/busybox --install -s /bin
libs() { for f in "$@"; do ldd "$f" | grep -o '/[^ ]*' | while read -r l; do
  mkdir -p "$R$(dirname "$l")"; cp -Ln "$l" "$R$l"; done; done; }
take() { for f in "$@"; do rm -f "$R/bin/$(basename "$f")"; cp "$f" $R/bin/; libs "$f"; done; }
printf 'hosts: files dns\n' > $R/etc/nsswitch.conf
eval "$EXTRA"
test -d oci || umoci init --layout oci
umoci new --image oci:$TAG; umoci insert --image oci:$TAG $R / ; umoci config --image oci:$TAG --config.env PATH=/bin
eval "$CONFIG"
"#;

/// Adds an image to the layout in a folder and gives its reference, or says why it cannot be made.
pub fn image(dir: &Path, tag: &str, extra: &str, config: &str) -> Result<String, String> {
    let made = Command::new("sh")
        .args(["-c", MAKE])
        .env("TAG", tag)
        .env("EXTRA", extra)
        .env("CONFIG", config)
        .current_dir(dir)
        .output();
    let made = made.map_err(|error| error.to_string())?;
    match made.status.success() {
        true => Ok(format!("oci:{}:{tag}", layout(dir).display())),
        false => Err(String::from_utf8_lossy(&made.stderr).into_owned()),
    }
}

fn layout(dir: &Path) -> PathBuf {
    dir.join("oci")
}

/// Whether this host has all of these programs; else the first that it lacks.
pub fn lacks(programs: &[&str]) -> Option<String> {
    let is_there = |program: &str| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        found.is_ok_and(|found| found.status.success())
    };
    let missing = programs.iter().find(|program| !is_there(program));
    missing.map(|program| format!("{program} is not installed"))
}
