//! Volumes that are taken out by a reload while their backing hangs: what else the file says does
//! not wait for them.

use rustix::process::Signal;

use super::{MEMORY, Written, new_volume, random, write_all};
use crate::serving::{Client, Folder, MIB};

#[test]
fn a_file_that_is_cut_for_a_moment_takes_no_volume_out() {
    let folder = Folder::new("cut");
    let config = Written::new(&folder, MEMORY, "off");
    config.write(&[&new_volume(&folder, "a", "")]);
    let mut process = config.serve(&folder);
    process.wait_ready();
    let mut client = Client::connect(&folder.path("socket"), "a");
    let data = random(MIB, 5);
    write_all(&mut client, &data);
    let other = new_volume(&folder, "b", "");
    for (text, cause) in [
        ("", "it names no volume"),
        (other.as_str(), "it names other volumes only"),
    ] {
        std::fs::write(&config.path, text).unwrap();
        process.signal(Signal::HUP);
        process.wait_said(cause);
    }
    assert!(
        process
            .said()
            .contains("nothing was reloaded: every volume")
    );
    client.read(0, &mut [0; 512]).unwrap();

    std::fs::write(&config.path, format!("take_out_all = true\n{other}")).unwrap();
    process.signal(Signal::HUP);
    process.wait_said("taken out: synced and closed\" volume=a");
    process.wait_said("msg=added volume=b");
    client.read(0, &mut [0; 512]).unwrap_err();
    process.stop();
    assert!(super::holds(&folder.path("a.img"), &data));
}

#[test]
fn half_a_file_takes_no_volume_out_that_has_clients() {
    let folder = Folder::new("half");
    let config = Written::new(&folder, MEMORY, "off");
    let [a, b, c] = ["a", "b", "c"].map(|name| new_volume(&folder, name, ""));
    config.write(&[&a, &b, &c]);
    let mut process = config.serve(&folder);
    process.wait_ready();
    let mut client = Client::connect(&folder.path("socket"), "c");
    write_all(&mut client, &random(MIB, 5));
    config.write(&[&a]);
    process.signal(Signal::HUP);
    process.wait_said("nothing was reloaded: a volume that has clients would be taken out");
    assert!(
        process.said().contains("volume=c clients=1"),
        "{}",
        process.said()
    );
    client.read(0, &mut [0; 512]).unwrap();
    assert!(
        !process.said().contains("taken out: synced"),
        "b stays, too"
    );

    // One without clients needs no word, the other one has it.
    config.write(&[&a, &c, "take_out = true\n"]);
    process.signal(Signal::HUP);
    process.wait_said("taken out: synced and closed\" volume=b");
    process.wait_said("taken out: synced and closed\" volume=c");
    process.wait_said("reloaded: serving 1 volume");
    client.read(0, &mut [0; 512]).unwrap_err();
    process.stop();
}

#[test]
fn a_volume_that_hangs_while_it_is_taken_out_holds_up_nothing_else() {
    let folder = Folder::new("leaves");
    let config = Written::new(&folder, MEMORY, "off");
    let volume = |name, device| new_volume(&folder, name, device);
    let hung = volume("hung", "device = \"slow:rate=0B\"");
    // It may still stand still when it is taken out, and when it is wanted again, or not: all is
    // the same here.
    let late = volume("late", "device = \"slow:rate=0B,then=64MiB@8s\"");
    let [stays, first, second] = ["stays", "first", "second"].map(|name| volume(name, ""));
    config.write(&[&stays, &hung, &late]);
    let mut process = config.serve(&folder);
    process.wait_ready();
    let socket = folder.path("socket");
    let data = random(MIB, 8);
    for name in ["hung", "late"] {
        Client::connect(&socket, name)
            .write(0, &data, false)
            .unwrap();
    }

    // Clients may be there yet.
    config.write(&["take_out_all = true\n", &stays, &first]);
    process.signal(Signal::HUP);
    process.wait_said("msg=added volume=first");
    write_all(&mut Client::connect(&socket, "first"), &data);
    process.wait("the first reload", |this| this.said().contains("reloaded:"));
    let said = process.said();
    let named = said
        .lines()
        .find(|line| line.contains("still being taken out") && line.contains("volume=hung"));
    let named = named.unwrap_or_else(|| panic!("nothing is said of it:\n{said}"));
    assert!(named.contains("1 MiB to be written"), "{named}");

    // Both are wanted again: the one when it is out, the other never is.
    config.write(&[&stays, &first, &second, &hung, &late]);
    process.signal(Signal::HUP);
    process.wait_said("msg=added volume=second");
    write_all(&mut Client::connect(&socket, "second"), &data);
    process.wait_said("not added yet: ");
    process.wait_said("taken out: synced and closed\" volume=late");
    process.wait_said("msg=added volume=late");
    let mut back = vec![0; data.len()];
    Client::connect(&socket, "late").read(0, &mut back).unwrap();
    assert!(back == data);
    assert!(!process.said().contains("closed\" volume=hung"));

    // An end waits for it, and says what is lost.
    process.signal(Signal::TERM);
    process.wait_said("syncing: backing ");
    process.signal(Signal::INT);
    let status = process.ended();
    let said = process.said();
    assert_eq!(status.code(), Some(130), "{said}");
    let last = &said[said.find("ended at once").unwrap()..];
    assert!(last.contains("volume `hung`: backing"), "{last}");
    assert!(!last.contains("volume `first`: backing"), "{last}");
}
