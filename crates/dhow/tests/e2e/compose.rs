//! A compose file, as people have them, from `up` to `rm`.

use std::fs;

use crate::support::{Daemon, busybox_layout, is_root, lacks, skip, until};

const FILE: &str = r#"
name: shop
x-usual: &usual
  image: oci:LAYOUT:bb
  stop_grace_period: 1s
services:
  web_app:
    <<: *usual
    container_name: shop_web
    command: sh -c 'mkdir -p /tmp/www; cat /etc/motd.txt > /tmp/www/index.html; exec httpd -f -p 8000 -h /tmp/www'
    expose: ["8000"]
    volumes: ["./motd.txt:/etc/motd.txt:ro", "data:/data:ro"]
    restart: unless-stopped
    networks: [back]
  migrate:
    <<: *usual
    command: ["sh", "-c", "echo $$HOSTNAME migrates ${WHAT:-nothing}"]
  client:
    <<: *usual
    command: sleep 100000
    depends_on:
      web_app: { condition: service_started }
      migrate: { condition: service_completed_successfully }
    extra_hosts: ["host.docker.internal:host-gateway"]
    secrets: [pw]
    networks: [back, default]
  other:
    <<: *usual
    command: sleep 100000
secrets: { pw: { file: ./pw.txt } }
networks: { back: }
volumes: { data: }
"#;

fn inside(daemon: &Daemon, replica: &str, script: &str) -> String {
    let answer = daemon.dhow(&["exec", replica, "--", "sh", "-c", script]);
    answer.stdout.trim().to_owned()
}

/// Names beside the services' own, mounts, secrets, and who may call whom.
fn is_as_in_docker(daemon: &Daemon) {
    for name in ["web-app", "web_app", "shop_web"] {
        until(name, || {
            let script = format!("timeout 3 wget -qO- http://{name}:8000/");
            (inside(daemon, "shop/client-default-0", &script) == "hello").then_some(())
        });
    }
    let client = |script: &str| inside(daemon, "shop/client-default-0", script);
    assert_eq!(client("cat /run/secrets/pw"), "hunter2");
    assert!(client("grep host.docker.internal /etc/hosts").ends_with("host.docker.internal"));
    let web = |script: &str| inside(daemon, "shop/web-app-default-0", script);
    assert_eq!(web("touch /data/x 2>/dev/null || echo no"), "no");
    // It shares no network with the web.
    let script = "timeout 3 wget -qO- http://web-app:8000/ || echo refused";
    assert_eq!(inside(daemon, "shop/other-default-0", script), "refused");
}

#[test]
fn a_compose_file_runs_and_its_deployment_file_says_the_same() {
    const WHAT: &str = "a compose file";
    if !is_root() {
        return skip(WHAT, "containers need root");
    }
    if let Some(why) = lacks(&["busybox", "umoci"]) {
        return skip(WHAT, &why);
    }
    let daemon = Daemon::start("compose");
    let folder = daemon.data_dir().parent().unwrap().to_owned();
    let layout = match busybox_layout(&folder) {
        Ok(layout) => layout,
        Err(why) => return skip(WHAT, &why),
    };
    let file = daemon.file(
        "compose.yaml",
        &FILE.replace("LAYOUT", &layout.display().to_string()),
    );
    daemon.file("motd.txt", "hello\n");
    daemon.file("pw.txt", "hunter2");
    daemon.file(".env", "WHAT=everything\n");
    daemon.dhow(&["up", "--detach", &file]).ends_with(0);
    let logs = daemon.dhow(&["logs", "shop/migrate", "--no-prefix"]).stdout;
    assert!(logs.contains("migrates everything"), "{logs}");
    is_as_in_docker(&daemon);
    let converted = daemon.dhow(&["convert", &file]).ends_with(0).stdout;
    let written = daemon.file("shop.dhow.yaml", &converted);
    for file in [&file, &written] {
        let plan = daemon.dhow(&["plan", file]).ends_with(0).stdout;
        let changes: Vec<&str> = plan.lines().filter(|line| line.starts_with("  ")).collect();
        assert!(
            changes.len() == 4 && changes.iter().all(|line| line.contains("unchanged")),
            "{plan}"
        );
    }
    // A secret that is there is left alone, and so is everything else.
    let again = daemon.dhow(&["deploy", &file]).ends_with(0);
    assert!(
        again.stderr.contains("secret shop.pw is kept") && again.stderr.contains("unchanged"),
        "{}",
        again.stderr
    );
    fs::write(&file, "services: { web: { image: a:1, pid: host } }").unwrap();
    let refused = daemon.dhow(&["deploy", &file]).ends_with(2);
    assert!(refused.stderr.contains("compose.yaml:1:37"), "{}", refused.stderr);
    daemon.dhow(&["rm", "shop", "--wait"]).ends_with(0);
    daemon.finish();
}
