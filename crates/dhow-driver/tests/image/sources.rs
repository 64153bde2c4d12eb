//! Images that are on this node already: layouts and archives.

use std::fs;
use std::io::Write;
use std::path::Path;

use dhow_driver::image::{Digest, ImageError};

use super::builder::{
    Compression, TestImage, archive, classic_files, layer, layout_files, tagged_files, write_layout,
};
use super::support::{TestStore, content, parse, pull, story};

fn image(text: &str) -> TestImage {
    TestImage::new(vec![
        layer(&[("a", text)], Compression::Gzip),
        layer(&[("b", "top")], Compression::Zstd),
    ])
}

fn reference(prefix: &str, path: &Path, suffix: &str) -> String {
    format!("{prefix}:{}{suffix}", path.display())
}

#[tokio::test]
async fn a_layout_is_imported_by_tag_alone_or_pinned() {
    let store = TestStore::new();
    let dir = store.dir.path().join("layout");
    let (one, two) = (image("one"), image("two"));
    write_layout(&dir, &[("v1", &one), ("v2", &two)]);
    let images = store.open();
    let tagged = pull(&images, &reference("oci", &dir, ":v2")).await.unwrap();
    assert_eq!(
        (tagged.digest(), content(&tagged, "a").as_deref()),
        (two.digest(), Some("two"))
    );
    let pinned = reference("oci", &dir, &format!("@{}", one.digest()));
    assert_eq!(
        content(&pull(&images, &pinned).await.unwrap(), "a").as_deref(),
        Some("one")
    );
    let error = pull(&images, &reference("oci", &dir, "")).await.unwrap_err();
    assert!(error.to_string().contains("several images (v1, v2)"), "{error}");
    let error = pull(&images, &reference("oci", &dir, ":v3")).await.unwrap_err();
    assert!(matches!(error, ImageError::NotFound { .. }), "{error:?}");
    write_layout(&dir, &[("v1", &one)]);
    let alone = pull(&images, &reference("oci", &dir, "")).await.unwrap();
    assert_eq!(alone.digest(), one.digest());
    assert_eq!(
        images
            .resolve(&parse(&reference("oci", &dir, ":v1")))
            .await
            .unwrap(),
        one.digest()
    );
    store.assert_tidy();
}

#[tokio::test]
async fn a_layout_that_is_not_as_it_should_be() {
    let store = TestStore::new();
    let images = store.open();
    let dir = store.dir.path().join("layout");
    let error = pull(&images, &reference("oci", &dir, ":v1")).await.unwrap_err();
    assert!(
        error.to_string().contains("does not exist on this node"),
        "{error}"
    );
    let image = image("x");
    write_layout(&dir, &[("v1", &image)]);
    let blob = |digest: Digest| dir.join("blobs/sha256").join(digest.hex());
    let damage = |digest: Digest, change: fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(blob(digest)).unwrap();
        change(&mut bytes);
        fs::write(blob(digest), bytes).unwrap();
    };
    let tagged = reference("oci", &dir, ":v1");
    damage(image.layers[0].digest(), |bytes| bytes[20] ^= 1);
    let error = pull(&images, &tagged).await.unwrap_err();
    assert!(
        matches!(error, ImageError::WrongDigest { what: "a layer", .. }),
        "{error:?}"
    );
    damage(image.layers[0].digest(), |bytes| bytes.push(0));
    let error = pull(&images, &tagged).await.unwrap_err();
    assert!(matches!(error, ImageError::WrongSize { .. }), "{error:?}");
    fs::remove_file(blob(image.layers[0].digest())).unwrap();
    let error = pull(&images, &tagged).await.unwrap_err();
    assert!(matches!(error, ImageError::BadSource { .. }), "{error:?}");
    fs::write(dir.join("index.json"), "{").unwrap();
    let error = pull(&images, &tagged).await.unwrap_err();
    assert!(error.to_string().contains("index.json is malformed"), "{error}");
    store.assert_tidy();
}

#[tokio::test]
async fn archives_of_every_age_are_imported() {
    let image = image("saved");
    let classic = archive(&classic_files(&[&image]));
    let modern = {
        let mut files = layout_files(&[("1", &image)]);
        files.extend(classic_files(&[&image]));
        archive(&files)
    };
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&classic).unwrap();
    for (name, bytes, is_layout) in [
        ("classic.tar", classic.clone(), false),
        ("modern.tar", modern, true),
        ("classic.tar.gz", gzip.finish().unwrap(), false),
        ("classic.tar.zst", zstd::encode_all(&*classic, 1).unwrap(), false),
    ] {
        let store = TestStore::new();
        let file = store.dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        let images = store.open();
        let reference = reference("docker-archive", &file, "");
        let digest = images.resolve(&parse(&reference)).await.unwrap();
        let imported = pull(&images, &reference).await.unwrap();
        assert_eq!(
            imported.digest(),
            digest,
            "{name}: the same archive always has the same digest"
        );
        assert_eq!(digest == image.digest(), is_layout, "{name}");
        assert_eq!(content(&imported, "a").as_deref(), Some("saved"), "{name}");
        assert_eq!(content(&imported, "b").as_deref(), Some("top"), "{name}");
        store.assert_tidy();
    }
}

#[tokio::test]
async fn an_archive_of_several_images_asks_which() {
    let store = TestStore::new();
    let (one, two) = (image("one"), image("two"));
    let file = store.dir.path().join("two.tar");
    let none: &[&str] = &[];
    fs::write(&file, archive(&tagged_files(&[(none, &one), (none, &two)]))).unwrap();
    let images = store.open();
    let error = pull(&images, &reference("docker-archive", &file, ""))
        .await
        .unwrap_err()
        .to_string();
    let chosen = error.split('@').nth(2).unwrap_or_else(|| panic!("{error}"));
    let pinned = reference("docker-archive", &file, &format!("@{chosen}"));
    assert_eq!(
        content(&pull(&images, &pinned).await.unwrap(), "a").as_deref(),
        Some("two")
    );
}

#[tokio::test]
async fn an_image_of_an_archive_is_chosen_by_its_name() {
    let store = TestStore::new();
    let (one, two) = (image("one"), image("two"));
    let classic = tagged_files(&[(&["shop:1"], &one), (&["reg.local:5000/shop:2", "shop:2"], &two)]);
    // The file's own name may have a colon too.
    for (name, files) in [
        ("two.tar", classic.clone()),
        ("t:wo.tar", classic),
        (
            "oci.tar",
            layout_files(&[("1", &one), ("docker.io/library/shop:2", &two)]),
        ),
    ] {
        let file = store.dir.path().join(name);
        fs::write(&file, archive(&files)).unwrap();
        let images = store.open();
        for tag in [":2", ":shop:2", ":docker.io/library/shop:2"] {
            let chosen = pull(&images, &reference("docker-archive", &file, tag))
                .await
                .unwrap();
            assert_eq!(content(&chosen, "a").as_deref(), Some("two"), "{name} {tag}");
        }
        let several = pull(&images, &reference("docker-archive", &file, "")).await;
        assert!(
            matches!(several, Err(ImageError::BadSource { .. })),
            "{name}: {several:?}"
        );
        let missing = pull(&images, &reference("docker-archive", &file, ":3")).await;
        assert!(
            matches!(missing, Err(ImageError::NotFound { .. })),
            "{name}: {missing:?}"
        );
    }
}

#[tokio::test]
async fn an_import_has_its_own_name_or_those_of_its_source() {
    let store = TestStore::new();
    let (one, two) = (image("one"), image("two"));
    let file = store.dir.path().join("saved.tar");
    let files = tagged_files(&[(&["shop:1", "reg.local:5000/shop:1"], &one), (&[], &two)]);
    fs::write(&file, archive(&files)).unwrap();
    let images = store.open();
    let named = |text: &str| parse(text);
    let from = parse(&reference("docker-archive", &file, ":shop:1"));

    let first = images.import(&from, Some(named("mine:dev"))).await.unwrap();
    assert_eq!(first.names, [named("mine:dev")]);
    let found = images.find(&named("mine:dev")).await.unwrap().unwrap();
    assert_eq!(found.digest(), first.image.digest());
    assert!(
        images.find(&from).await.unwrap().is_none(),
        "the path is no second name"
    );
    assert!(images.find(&named("shop:1")).await.unwrap().is_none());

    let imported = images.import(&from, None).await.unwrap();
    assert_eq!(imported.names, [named("shop:1"), named("reg.local:5000/shop:1")]);
    drop((first, imported, found));

    // Each name that goes is told; the image goes with its last one, and with what pins it.
    let nobody = std::collections::BTreeSet::new();
    let pinned = images.find(&named("shop:1")).await.unwrap().unwrap().digest();
    let report = images.remove(&named("mine:dev"), &nobody).await.unwrap();
    assert_eq!(
        (report.untagged, report.images),
        (vec![named("mine:dev")], vec![])
    );
    assert_eq!(report.kept_as.len(), 2);
    images
        .remove(&named("reg.local:5000/shop:1"), &nobody)
        .await
        .unwrap();
    let report = images.remove(&named("shop:1"), &nobody).await.unwrap();
    assert_eq!((report.untagged, report.images), (vec![], vec![pinned]));
    assert!(report.freed_bytes > 0);
    let gone = images.remove(&named("shop:1"), &nobody).await.unwrap_err();
    assert!(matches!(gone, ImageError::NotHere { .. }), "{gone:?}");
}

#[tokio::test]
async fn links_between_layers_of_an_archive_are_followed() {
    let store = TestStore::new();
    let image = image("linked");
    let mut files = classic_files(&[&image]);
    let name = format!("{}/layer.tar", image.layers[0].diff_id().hex());
    let bytes = files.remove(&name).unwrap();
    files.insert("shared/layer.tar".to_owned(), bytes);
    let mut builder = tar::Builder::new(archive(&files));
    // The archive so far has no end mark of its own: entries are appended behind its bytes.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder
        .append_link(&mut header, &name, "../shared/layer.tar")
        .unwrap();
    let bytes = builder.into_inner().unwrap();
    let end = archive(&files).len() - 1024;
    let file = store.dir.path().join("linked.tar");
    fs::write(&file, [&bytes[..end], &bytes[end + 1024..]].concat()).unwrap();
    let imported = pull(&store.open(), &reference("docker-archive", &file, ""))
        .await
        .unwrap();
    assert_eq!(content(&imported, "a").as_deref(), Some("linked"));
}

#[tokio::test]
async fn what_is_no_archive() {
    let store = TestStore::new();
    let images = store.open();
    let file = store.dir.path().join("file");
    let attempt = reference("docker-archive", &file, "");
    assert!(
        pull(&images, &attempt)
            .await
            .unwrap_err()
            .to_string()
            .contains("does not exist on this node")
    );
    fs::write(
        &file,
        "this is no tar file at all, and it is not even long enough to look like one",
    )
    .unwrap();
    assert!(matches!(
        pull(&images, &attempt).await,
        Err(ImageError::BadSource { .. })
    ));
    fs::write(&file, archive(&[("x".to_owned(), vec![1])].into())).unwrap();
    let error = pull(&images, &attempt).await.unwrap_err();
    assert!(story(&error).contains("manifest.json"), "{}", story(&error));
    // A layer that was exchanged inside of the archive.
    let image = image("x");
    let mut files = classic_files(&[&image]);
    let name = format!("{}/layer.tar", image.layers[0].diff_id().hex());
    files.insert(name, layer(&[("a", "evil")], Compression::None).tar);
    fs::write(&file, archive(&files)).unwrap();
    assert!(matches!(
        pull(&images, &attempt).await,
        Err(ImageError::BadLayer { .. })
    ));
    store.assert_tidy();
}
