//! `dhow cp`: files out of replicas and into them, through the connection of `dhow exec`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;

use crate::support::{Daemon, Service, busybox_layout, container, is_root, skip, until};

/// A folder with what a copy has to keep.
fn site(at: &Path) {
    fs::create_dir_all(at.join("deep")).unwrap();
    fs::write(at.join("index"), "hello").unwrap();
    fs::write(at.join("deep/large"), vec![b'x'; 3_000_000]).unwrap();
    fs::set_permissions(at.join("deep/large"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("index", at.join("link")).unwrap();
}

fn is_site(at: &Path) {
    assert_eq!(fs::read(at.join("index")).unwrap(), b"hello", "{at:?}");
    let large = fs::metadata(at.join("deep/large")).unwrap();
    assert_eq!((large.len(), large.mode() & 0o777), (3_000_000, 0o750));
    assert_eq!(fs::read_link(at.join("link")).unwrap(), Path::new("index"));
}

#[test]
fn files_of_host_programs_are_copied_both_ways() {
    let daemon = Daemon::start("copies");
    let folder = daemon.scratch.path.join("work");
    fs::create_dir(&folder).unwrap();
    let web = Service::sleeper().with(
        "command",
        json!({ "entrypoint": ["sleep", "3600"], "workdir": folder }),
    );
    daemon.deploy("shop", &[("web", web)]).ends_with(0);
    let here = daemon.scratch.path.join("site");
    site(&here);
    let (here, back) = (here.display().to_string(), daemon.scratch.path.join("back"));
    // A path without `/` before it lies below the working directory.
    daemon.dhow(&["cp", &here, "shop/web:pages"]).ends_with(0);
    is_site(&folder.join("pages"));
    let back_text = back.display().to_string();
    let said = daemon
        .dhow(&["cp", "shop/web-default-0:pages", &back_text])
        .ends_with(0);
    assert!(
        said.stderr.contains("3 files, 2.9 MiB, copied to"),
        "{}",
        said.stderr
    );
    is_site(&back);
    // As a tar archive, in and out.
    let tar = daemon
        .dhow_command()
        .args(["cp", "shop/web:pages", "-"])
        .output()
        .unwrap();
    assert!(tar.status.success());
    daemon
        .dhow_with_stdin(&["cp", "-", "shop/web:."], &tar.stdout)
        .ends_with(0);
    let absent = daemon.dhow(&["cp", "shop/web:absent", &back_text]).ends_with(1);
    assert!(absent.stderr.contains("absent"), "{}", absent.stderr);
    daemon.dhow(&["cp", "shop/none:x", &back_text]).ends_with(4);
    daemon.dhow(&["cp", &here, &back_text]).ends_with(2);
    daemon.dhow(&["cp", "./absent", "shop/web:x"]).ends_with(2);
    daemon.finish();
}

/// Without tar in the image, as its user, and never outside of it.
#[test]
fn files_of_containers_are_copied_inside_of_them() {
    const WHAT: &str = "copies of containers' files";
    if !is_root() {
        return skip(WHAT, "containers need root");
    }
    let daemon = Daemon::start("copies-inside");
    let layout = match busybox_layout(&daemon.scratch.path) {
        Ok(layout) => layout,
        Err(why) => {
            daemon.finish();
            return skip(WHAT, &why);
        }
    };
    let secret = daemon.scratch.path.join("of-the-host");
    fs::write(&secret, "of the host").unwrap();
    let script = format!(
        "mkdir -p /tmp/logs; echo inside > /tmp/logs/a; ln -s {} /tmp/logs/out; ln -s / /tmp/root; rm /bin/tar; exec sleep 3600",
        secret.display()
    );
    daemon
        .deploy("shop", &[("web", container(&layout, &script))])
        .ends_with(0);
    let inside = |script: &str| {
        let run = daemon.dhow(&["exec", "shop/web-default-0", "--", "sh", "-c", script]);
        run.ends_with(0).stdout
    };
    until("it has begun", || {
        inside("ls /bin/tar 2>/dev/null || echo gone")
            .contains("gone")
            .then_some(())
    });
    let back = daemon.scratch.path.join("back");
    let back_text = back.display().to_string();
    daemon
        .dhow(&["cp", "shop/web:/tmp/logs", &back_text])
        .ends_with(0);
    assert_eq!(fs::read(back.join("a")).unwrap(), b"inside\n");
    assert!(
        fs::symlink_metadata(back.join("out")).unwrap().is_symlink(),
        "a link stays a link"
    );
    // A link to `/` is the container's.
    let out = daemon.dhow(&[
        "cp",
        &format!("shop/web:/tmp/root{}", secret.display()),
        &back_text,
    ]);
    out.ends_with(1);
    let here = daemon.scratch.path.join("site");
    site(&here);
    daemon
        .dhow(&[
            "cp",
            &format!("{}/.", here.display()),
            "shop/web:/tmp/root/tmp/site",
        ])
        .ends_with(0);
    assert_eq!(
        inside("cat /tmp/site/index; stat -c %a:%s /tmp/site/deep/large; readlink /tmp/site/link"),
        "hello750:3000000\nindex\n"
    );
    assert!(!Path::new("/tmp/site/index").exists());
    daemon.finish();
}
