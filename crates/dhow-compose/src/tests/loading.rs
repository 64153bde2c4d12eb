//! From files to one project: names, overrides, `extends`, `include`, profiles.

use super::world;
use crate::is_compose;

#[test]
fn compose_files_are_told_from_deployment_files() {
    for (text, expected) in [
        ("services: { web: { image: a } }", true),
        ("version: '3.8'\nservices:\n  web: !reset\n", true),
        ("include: [a.yaml]", true),
        ("version: v1\ndeployment: a\nservices: {}", false),
        ("version: v1\nservices: {}", false),
        ("deployment: a\nservices: {}", false),
        ("- a", false),
        ("{", false),
    ] {
        assert_eq!(is_compose(text, "x"), expected, "{text}");
    }
}

#[test]
fn the_name_is_the_flag_the_variable_the_file_the_folder() {
    let mut shop = world("name: In_File\nservices: { web: { image: a:1 } }\n");
    assert_eq!(shop.deployment().deployment.as_str(), "in-file");
    shop.set("COMPOSE_PROJECT_NAME", "by_variable");
    assert_eq!(shop.deployment().deployment.as_str(), "by-variable");
    shop.asked.project = Some("By.Flag".into());
    assert_eq!(shop.deployment().deployment.as_str(), "by-flag");
    shop.asked.project = Some("9".into());
    assert!(shop.refusals()[0].contains("-p NAME"), "{:?}", shop.refusals());
    let folder = world("services: { web: { image: a:1 } }\n");
    assert_eq!(folder.deployment().deployment.as_str(), "shop");
}

#[test]
fn later_files_are_put_over_earlier_ones() {
    let mut shop = world(
        "x-env: &env { A: one }\nservices:\n  web:\n    image: a:1\n    command: [one]\n    environment: { <<: *env, B: two }\n    \
         ports: [\"80:80\", \"81:81\"]\n    volumes: [\"./data:/data\"]\n    labels: [k=v]\n    dns: 1.1.1.1\n  gone: { image: a:1 }\n",
    );
    shop.add(
        "over.yaml",
        "services:\n  web:\n    command: two words\n    environment: [B=three, C=four]\n    ports: !override [\"82:82\"]\n    \
         volumes: [\"./other:/data\"]\n    labels: !reset null\n    dns: [8.8.8.8]\n  gone: !reset null\n",
    );
    shop.asked.files.push("/srv/shop/over.yaml".into());
    let deployment = shop.deployment();
    assert_eq!(deployment.services.len(), 1);
    let web = deployment.services.values().next().unwrap();
    assert_eq!(
        web.command.as_ref().unwrap().args.as_ref().unwrap(),
        &["two", "words"]
    );
    let env: Vec<_> = web
        .env
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(env, ["A=one", "B=three", "C=four"]);
    assert_eq!(web.endpoints.iter().map(|one| one.port).collect::<Vec<_>>(), [82]);
    assert_eq!(web.storage.len(), 1);
    assert!(web.labels.is_empty());
    assert_eq!(web.dns, ["1.1.1.1", "8.8.8.8"]);
}

#[test]
fn extends_and_include_are_followed() {
    let mut shop = world(
        "include: [sub/more.yaml]\nservices:\n  web:\n    extends: { file: sub/base.yaml, service: base }\n    environment: { B: own }\n  \
         two: { extends: web, image: b:2 }\n",
    );
    shop.add(
        "sub/base.yaml",
        "services: { base: { image: a:1, environment: { A: base, B: base }, env_file: base.env } }\n",
    );
    shop.add("sub/base.env", "F=beside it\n");
    shop.add("sub/more.yaml", "services: { cache: { image: \"c:${N}\" } }\n");
    shop.add("sub/.env", "N=3\n");
    let deployment = shop.deployment();
    let of = |name: &str| {
        deployment
            .services
            .iter()
            .find(|(service, _)| service.as_str() == name)
            .unwrap()
            .1
    };
    let env: Vec<_> = of("two")
        .env
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(env, ["A=base", "B=own", "F=beside it"]);
    assert_eq!(of("two").image.as_ref().unwrap().name, "b:2");
    assert_eq!(of("cache").image.as_ref().unwrap().name, "c:3");
    for (text, message) in [
        (
            "services: { a: { extends: b }, b: { extends: a } }",
            "extends itself",
        ),
        (
            "services: { a: { extends: { file: gone.yaml, service: b } } }",
            "there is no /srv/shop/gone.yaml",
        ),
        (
            "include: [compose.yaml]\nservices: { a: { image: x:1 } }",
            "this includes itself",
        ),
    ] {
        let found = world(text).refusals();
        assert!(
            found.iter().any(|found| found.contains(message)),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn services_with_profiles_run_when_asked_for() {
    let text = "services:\n  web: { image: a:1 }\n  debug: { image: a:1, profiles: [dev] }\n";
    let mut shop = world(text);
    assert_eq!(shop.deployment().services.len(), 1);
    assert!(shop.notes()[0].contains("left out"));
    shop.set("COMPOSE_PROFILES", "dev,other");
    assert_eq!(shop.deployment().services.len(), 2);
    shop.env.clear();
    shop.asked.profiles = vec!["*".into()];
    assert_eq!(shop.deployment().services.len(), 2);
}

#[test]
fn what_is_not_set_is_told_once() {
    let shop = world("services: { web: { image: a:1, environment: { A: $GONE, B: \"${GONE}\" } } }\n");
    let said = "`GONE` is not set: it is empty here; write `$$` for a `$` that is meant as it stands";
    assert_eq!(shop.notes(), [said]);
}

#[test]
fn what_is_not_set_in_a_file_of_variables_is_told_with_its_line() {
    let mut shop =
        world("services: { web: { image: a:1, env_file: app.env, environment: { P: $PASSWORD } } }\n");
    shop.add(".env", "A=1\nPASSWORD=p#w$x\n");
    shop.add("app.env", "SECRET_KEY=aaa$bb\nSAFE='c$d'\n");
    assert_eq!(shop.deployment().services.len(), 1);
    let hint = "it is empty here; write `$$` for a `$` that is meant as it stands";
    let expected = [
        format!("`x` is not set: {hint}"),
        format!("web: line 1 of app.env: `bb` is not set: {hint}"),
    ];
    assert_eq!(shop.notes(), expected);
}
