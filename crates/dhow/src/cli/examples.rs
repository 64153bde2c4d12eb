//! Examples for the help of each verb. A test reads each line as the command line does.

/// A verb and its lines, each with what it is for, which may be nothing.
type Examples = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const ALL: &[Examples] = &[
    (
        &["up"],
        &[
            ("dhow up examples/hello.dhow.yaml", "until Ctrl-C"),
            (
                "dhow up -d shop.dhow.yaml",
                "the daemon goes on in the background",
            ),
        ],
    ),
    (
        &["deploy"],
        &[
            ("dhow deploy shop.dhow.yaml", "waits until it is stable"),
            ("dhow deploy shop.dhow.yaml --timeout 10m", ""),
        ],
    ),
    (
        &["validate"],
        &[("dhow validate shop.dhow.yaml blog.dhow.yaml", "")],
    ),
    (
        &["plan"],
        &[("dhow plan shop.dhow.yaml", "what a deploy would change")],
    ),
    (
        &["plan", "rebalance"],
        &[("dhow plan rebalance", "what would be moved, and what it brings")],
    ),
    (
        &["status"],
        &[
            ("dhow status", "all deployments"),
            ("dhow status shop", "its services"),
            ("dhow status shop --at 14:03", "as it was then"),
        ],
    ),
    (
        &["ps"],
        &[
            ("dhow ps shop", ""),
            ("dhow ps --usage", "with CPU and memory"),
            ("dhow ps shop --all", "also what has ended"),
            ("dhow ps shop --at 2h", "as it was two hours ago"),
        ],
    ),
    (
        &["diff"],
        &[
            ("dhow diff --from 2h", "since two hours ago"),
            ("dhow diff shop --from 1204 --to 2026-11-19T14:03", ""),
        ],
    ),
    (
        &["debug", "replay"],
        &[
            ("dhow debug replay /var/lib/dhow", "what this server has kept"),
            ("dhow debug replay /tmp/past --until 1204 --verbose", ""),
        ],
    ),
    (
        &["logs"],
        &[
            ("dhow logs shop -f", "all replicas, as it comes"),
            ("dhow logs shop/web -n 100", "of one service"),
            ("dhow logs shop/web --previous", "before they were restarted"),
            ("dhow logs shop --since 10m --grep timeout", ""),
            (
                "dhow logs shop --since 2026-11-18T20:00:00Z --until 2026-11-18T21:00:00Z",
                "",
            ),
        ],
    ),
    (
        &["exec"],
        &[
            ("dhow exec shop/web-default-0 -- id", "one command"),
            ("dhow exec -it shop/web -- sh", "a shell in a healthy replica"),
            ("dhow exec -it shop/db -- psql -U postgres", ""),
            ("dhow exec -i shop/db -- psql -U postgres < load.sql", ""),
            ("dhow exec shop/web -- tar c /data > data.tar", ""),
        ],
    ),
    (
        &["cp"],
        &[
            ("dhow cp shop/db:/var/log/db.log .", "out of a healthy replica"),
            ("dhow cp shop/web-default-0:/etc/nginx conf", "a folder"),
            (
                "dhow cp site/. shop/web-default-0:/srv/site",
                "the content of a folder",
            ),
            ("dhow cp shop/db:/data - > data.tar", "as a tar archive"),
        ],
    ),
    (
        &["port-forward"],
        &[
            ("dhow port-forward shop/db 5432", "127.0.0.1:5432 is the database"),
            (
                "dhow port-forward shop/web-default-0 8080:80",
                "of this replica, at another port here",
            ),
        ],
    ),
    (
        &["scale"],
        &[
            ("dhow scale shop/web=4 --wait", ""),
            ("dhow scale shop/db/primary=1 shop/db/standby=2", "by role"),
        ],
    ),
    (
        &["stop"],
        &[
            ("dhow stop shop --wait", "all of it, until it is started again"),
            ("dhow stop shop/web", "one service"),
        ],
    ),
    (
        &["start"],
        &[("dhow start shop --wait", "with the counts that it has")],
    ),
    (
        &["rebalance"],
        &[
            ("dhow rebalance --max 10 --wait", ""),
            ("dhow rebalance --stop", "what has not gone yet stays"),
        ],
    ),
    (
        &["restart"],
        &[
            ("dhow restart shop", "what runs on, one after the other"),
            ("dhow restart shop/web --wait", ""),
        ],
    ),
    (&["rm"], &[("dhow rm shop --wait", "")]),
    (&["history"], &[("dhow history shop", "")]),
    (
        &["rollback"],
        &[
            ("dhow rollback shop", "to the last good revision"),
            ("dhow rollback shop --to 3 --wait", ""),
        ],
    ),
    (
        &["rollout", "ls"],
        &[("dhow rollout ls", "and the gates at which rollouts wait")],
    ),
    (
        &["rollout", "promote"],
        &[
            ("dhow rollout promote shop/web", "the canary is good"),
            ("dhow rollout promote shop/web --wait --timeout 10m", ""),
        ],
    ),
    (
        &["rollout", "pause"],
        &[("dhow rollout pause shop", "until it is resumed")],
    ),
    (&["rollout", "resume"], &[("dhow rollout resume shop", "")]),
    (
        &["rollout", "abort"],
        &[("dhow rollout abort shop", "back to the last good revision")],
    ),
    (
        &["explain"],
        &[
            ("dhow explain shop/web", "why it runs or not, and where"),
            ("dhow explain shop/web-default-0", ""),
        ],
    ),
    (
        &["events"],
        &[("dhow events -f", ""), ("dhow events --audit", "who did what")],
    ),
    (
        &["cron", "ls"],
        &[
            ("dhow cron ls", "all schedules"),
            ("dhow cron ls shop/nightly", "its kept runs"),
        ],
    ),
    (
        &["cron", "next"],
        &[("dhow cron next shop/nightly -n 5", "when it runs, in its zone")],
    ),
    (
        &["cron", "run"],
        &[("dhow cron run shop/nightly --wait", "now, beside its schedule")],
    ),
    (
        &["convert"],
        &[(
            "dhow convert compose.yaml > shop.dhow.yaml",
            "as a deployment file",
        )],
    ),
    (
        &["schema"],
        &[("dhow schema > dhow.schema.json", "for an editor")],
    ),
    (
        &["net", "check"],
        &[("dhow net check shop/web shop/db", "may it, and does it work")],
    ),
    (&["node", "ls"], &[("dhow node ls", "")]),
    (&["node", "show"], &[("dhow node show 2", "")]),
    (
        &["node", "drain"],
        &[
            ("dhow node drain 2", ""),
            ("dhow node drain 2 --deadline 10m", "then what is left is ended"),
        ],
    ),
    (&["node", "undrain"], &[("dhow node undrain 2", "")]),
    (
        &["node", "label"],
        &[("dhow node label 2 disk=ssd rack-", "sets one, takes one away")],
    ),
    (
        &["node", "rm"],
        &[
            ("dhow node rm 2", ""),
            ("dhow node rm 2 --force", "one that never comes back"),
        ],
    ),
    (&["cluster", "status"], &[("dhow cluster status", "")]),
    (
        &["cluster", "upgrade-check"],
        &[("dhow cluster upgrade-check", "while servers are upgraded")],
    ),
    (
        &["cluster", "keygen"],
        &[("dhow cluster keygen > cluster.key", "with umask 077")],
    ),
    (
        &["cluster", "add"],
        &[(
            "dhow cluster add 4 --raft-addr 10.0.0.4:3671 --api-addr 10.0.0.4:3669",
            "",
        )],
    ),
    (&["cluster", "remove"], &[("dhow cluster remove 4", "")]),
    (&["cluster", "backup"], &[("dhow cluster backup today.dhow", "")]),
    (
        &["cluster", "restore"],
        &[(
            "dhow cluster restore today.dhow --config dhow.yaml",
            "with the daemon stopped",
        )],
    ),
    (
        &["cluster", "recover"],
        &[(
            "dhow cluster recover --config dhow.yaml",
            "says first what it would do",
        )],
    ),
    (
        &["cluster", "rotate-worker-ca"],
        &[("dhow cluster rotate-worker-ca", "")],
    ),
    (
        &["volume", "ls"],
        &[
            ("dhow volume ls", "of every node"),
            ("dhow volume ls shop", "of one deployment"),
        ],
    ),
    (&["volume", "show"], &[("dhow volume show shop/pgdata", "")]),
    (
        &["volume", "rm"],
        &[("dhow volume rm shop/pgdata --node 2", "that of node 2")],
    ),
    (
        &["volume", "prune"],
        &[
            ("dhow volume prune", "shows them and asks"),
            ("dhow volume prune --yes", ""),
        ],
    ),
    (
        &["volume", "backup"],
        &[
            ("dhow volume backup shop/pgdata pgdata.tar", ""),
            (
                "dhow volume backup shop/pgdata - > /mnt/pgdata.tar",
                "over stdout",
            ),
        ],
    ),
    (
        &["volume", "restore"],
        &[
            (
                "dhow volume restore shop/pgdata pgdata.tar",
                "after `dhow stop shop/db --wait`",
            ),
            (
                "dhow volume restore shop/pgdata - < /mnt/pgdata.tar",
                "from stdin",
            ),
        ],
    ),
    (&["image", "ls"], &[("dhow image ls", "of this node")]),
    (&["image", "pull"], &[("dhow image pull nginx:1.27", "")]),
    (
        &["image", "import"],
        &[("dhow image import web.tar --name registry.example/web:1.4", "")],
    ),
    (&["image", "rm"], &[("dhow image rm nginx:1.27", "")]),
    (
        &["image", "prune"],
        &[("dhow image prune", "all that nothing uses")],
    ),
    (
        &["secret", "set"],
        &[
            ("dhow secret set db-password < password.txt", ""),
            ("dhow secret set tls-key --from-file tls.key", ""),
        ],
    ),
    (&["secret", "ls"], &[("dhow secret ls", "names, never values")]),
    (&["secret", "rm"], &[("dhow secret rm db-password", "")]),
    (
        &["source", "add"],
        &[
            (
                "dhow source add site /srv/site --key KEY",
                "the key that `source keygen` prints",
            ),
            (
                "dhow source add team https://git.example.com/team.git --git --ref main --path prod --key KEY",
                "",
            ),
        ],
    ),
    (
        &["source", "accept"],
        &[
            ("dhow source accept site", "what `source ls` says to wait"),
            ("dhow source accept site --version 12", "only that one"),
        ],
    ),
    (
        &["source", "retry"],
        &[("dhow source retry site", "after what it needs was mended")],
    ),
    (&["source", "ls"], &[("dhow source ls", "")]),
    (&["source", "rm"], &[("dhow source rm site", "")]),
    (
        &["source", "sync"],
        &[("dhow source sync site", "now, not at the next look")],
    ),
    (&["source", "keygen"], &[("dhow source keygen site.key", "")]),
    (
        &["source", "sign"],
        &[("dhow source sign /srv/site --key-file site.key", "")],
    ),
    (
        &["notify", "add"],
        &[
            ("dhow notify add ops https://ops.example/dhow > notify.key", ""),
            (
                "dhow notify add pager https://pager.example/x --key-file notify.key --on node-lost,alarm",
                "",
            ),
        ],
    ),
    (&["notify", "ls"], &[("dhow notify ls", "")]),
    (&["notify", "rm"], &[("dhow notify rm ops", "")]),
    (&["notify", "test"], &[("dhow notify test ops", "")]),
    (
        &["token", "create"],
        &[
            ("dhow token create --role admin --name ci --ttl 12h", ""),
            ("dhow token create --role read", "sees, changes nothing"),
            (
                "dhow token create --role deploy --deployment shop",
                "for a build server",
            ),
        ],
    ),
    (
        &["token", "create-worker"],
        &[("dhow token create-worker --uses 20 --label zone=a", "")],
    ),
    (&["token", "ls"], &[("dhow token ls", "")]),
    (&["token", "revoke"], &[("dhow token revoke 7", "")]),
    (
        &["daemon"],
        &[
            ("dhow daemon", "one machine, no configuration"),
            ("dhow daemon --config dhow.yaml", ""),
            (
                "dhow daemon --config dhow.yaml --check",
                "says what is wrong and ends",
            ),
        ],
    ),
    (
        &["worker"],
        &[(
            "dhow worker --servers 10.0.0.1:3670,10.0.0.2:3670 --token-file worker.token",
            "",
        )],
    ),
    (
        &["login"],
        &[
            (
                "dhow login ghcr.io -u me --password-stdin < token",
                "for all nodes that pull from there",
            ),
            ("dhow login --ls", "the registries"),
        ],
    ),
    (&["logout"], &[("dhow logout ghcr.io", "")]),
    (
        &["completions"],
        &[("dhow completions bash > /etc/bash_completion.d/dhow", "")],
    ),
];

/// The command line with the examples at the end of each verb's help.
pub fn add(command: clap::Command) -> clap::Command {
    ALL.iter()
        .fold(command, |command, (verb, lines)| with(command, verb, lines))
}

fn with(command: clap::Command, verb: &[&'static str], lines: &[(&str, &str)]) -> clap::Command {
    match verb {
        [] => {
            let before = command.get_after_help().map(|text| format!("\n\n{text}"));
            let text = text(lines) + &before.unwrap_or_default();
            command.after_help(text)
        }
        [first, rest @ ..] => command.mut_subcommand(first, |inner| with(inner, rest, lines)),
    }
}

fn text(lines: &[(&str, &str)]) -> String {
    let explained = lines.iter().filter(|(_, what)| !what.is_empty());
    let width = explained.map(|(line, _)| line.len()).max().unwrap_or(0);
    let shown = lines.iter().map(|(line, what)| match what.is_empty() {
        true => format!("\n  {line}"),
        false => format!("\n  {line:width$}   {what}"),
    });
    format!("Examples:{}", shown.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    /// The verbs that can be called, each with those before it.
    fn verbs(command: &clap::Command, before: &[String]) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for inner in command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help")
        {
            let path = [before, &[inner.get_name().to_owned()]].concat();
            match inner.has_subcommands() {
                true => found.extend(verbs(inner, &path)),
                false => found.push(path),
            }
        }
        found
    }

    #[test]
    fn every_verb_has_examples() {
        let offered = Cli::offered();
        for verb in verbs(&offered, &[]) {
            let inner = verb
                .iter()
                .try_fold(&offered, |command, name| command.find_subcommand(name));
            let help = inner.and_then(clap::Command::get_after_help);
            let has_some = help.is_some_and(|help| help.to_string().contains("Example"));
            assert!(has_some, "`dhow {}` has no examples", verb.join(" "));
        }
    }

    #[test]
    fn examples_are_those_of_their_verb() {
        for (verb, lines) in ALL {
            let call = format!("dhow {}", verb.join(" "));
            assert!(lines.iter().all(|(line, _)| line.starts_with(&call)), "{call}");
        }
    }

    /// A line of the verb as it is without any word about waiting.
    fn plain_line(verb: &[String]) -> Option<Vec<&'static str>> {
        let (_, lines) = ALL.iter().find(|(known, _)| *known == verb)?;
        let (line, _) = lines.first()?;
        let own = line.split(['<', '>']).next()?;
        let mut words: Vec<&str> = Vec::new();
        let mut is_value = false;
        for word in own.split_whitespace() {
            if !is_value && !["--wait", "--detach", "-d", "--timeout"].contains(&word) {
                words.push(word);
            }
            is_value = word == "--timeout";
        }
        Some(words)
    }

    /// Whoever changes something returns once that is durable and has `--wait`, or waits and has `--detach`; `--timeout`
    /// belongs to waiting alone.
    #[test]
    fn all_verbs_wait_by_one_rule() {
        let offered = Cli::offered();
        let mut seen = [0, 0];
        for verb in verbs(&offered, &[]) {
            let command = verb
                .iter()
                .try_fold(&offered, |command, name| command.find_subcommand(name));
            let has = |long: &str| {
                command.is_some_and(|command| command.get_arguments().any(|arg| arg.get_long() == Some(long)))
            };
            let (waits, detaches, limits) = (has("wait"), has("detach"), has("timeout"));
            let name = verb.join(" ");
            assert!(!(waits && detaches), "`{name}` has both --wait and --detach");
            if !(waits || detaches) {
                // The end of a daemon is always waited for.
                assert!(
                    !limits || name == "daemon stop",
                    "`{name}` has --timeout and nothing to wait for"
                );
                continue;
            }
            assert!(limits, "`{name}` waits without an end");
            let line = plain_line(&verb).unwrap_or_else(|| panic!("`{name}` has no example"));
            let reads = |more: &[&str]| {
                let words = line.iter().copied().chain(more.iter().copied());
                Cli::offered().try_get_matches_from(words).is_ok()
            };
            assert!(reads(&[]), "{line:?}");
            if waits {
                seen[0] += 1;
                assert!(
                    reads(&["--wait", "--timeout", "5s"]) && reads(&["--wait"]),
                    "{name}"
                );
                assert!(
                    !reads(&["--timeout", "5s"]),
                    "`{name} --timeout` without --wait means nothing"
                );
            } else {
                seen[1] += 1;
                assert!(reads(&["--timeout", "5s"]) && reads(&["-d"]), "{name}");
                // It leaves something behind that has to come up first.
                let both = reads(&["--detach", "--timeout", "5s"]);
                assert_eq!(both, name == "up", "`{name} --detach --timeout`");
            }
        }
        assert!(seen[0] >= 8 && seen[1] >= 3, "{seen:?}");
    }

    #[test]
    fn examples_are_read() {
        for (line, _) in ALL.iter().flat_map(|(_, lines)| *lines) {
            // What follows is the shell's.
            let own = line.split(['<', '>']).next().unwrap_or_default();
            if let Err(error) = Cli::offered().try_get_matches_from(own.split_whitespace()) {
                panic!("{line}: {error}");
            }
        }
    }
}
