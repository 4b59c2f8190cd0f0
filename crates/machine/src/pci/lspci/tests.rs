//! Texts printed by `lspci`. Texts beside a `.hex` file were printed by version 3.9.0 from the bytes of that file
//! (`lspci -F`). `connectx2-2012.txt` has the form of older versions.

use super::*;

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../samples/", $name))
    };
}

const OLD: &str = sample!("connectx2-2012.txt");

fn parse_one(text: &str) -> PciFunction {
    let mut all = parse(text).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn shape(generation: u8, lanes: u32) -> LinkShape {
    LinkShape { generation: Some(generation), lanes: Some(lanes) }
}

#[test]
fn connectx2__is_read_from_old_and_new_versions() {
    for text in [sample!("connectx2.txt"), OLD] {
        let f = parse_one(text);
        assert_eq!((f.address.as_str(), f.shown), ("41:00.0", CapabilityState::Registers));
        assert_eq!((f.link_can, f.link_is), (shape(2, 8), shape(2, 8)));
        assert_eq!(
            (f.payload_can, f.payload_is, f.read_request, f.rcb),
            (Some(256), Some(256), Some(512), Some(64))
        );
        assert_eq!((f.latency_timer, f.cache_line), (Some(0), Some(32)));
        assert_eq!(f.wake.accepts_l0s.as_deref(), Some("<64ns"));
        assert_eq!(f.wake.accepts_l1.as_deref(), Some("unlimited"));
        assert_eq!(f.wake.takes_l0s.as_deref(), Some("unlimited"));
        assert_eq!((f.tags_can, f.tags_is), (Some(32), Some(32)));
        assert_eq!(f.aspm_is, Some(Aspm::default()));
        assert_eq!(f.link_target, Some(2));
        assert_eq!((f.ecrc, f.port), (None, Some(PortType::Endpoint)));
        assert_eq!(f.errors.corrected, Some(false));
        assert_eq!(f.unread, Vec::<String>::new());
        assert!(f.name.contains("PCIe 2.0"), "{}", f.name);
    }
}

#[test]
fn gpu__has_half_its_lanes_and_sent_packets_again() {
    let f = parse_one(sample!("gpu.txt"));
    assert_eq!((f.link_can, f.link_is), (shape(4, 16), shape(4, 8)));
    assert_eq!((f.tags_can, f.tags_is), (Some(768), Some(256)));
    assert_eq!(f.errors.corrected, Some(true));
    assert_eq!(f.relaxed_order, Some(true));
    assert_eq!(f.aspm_is, Some(Aspm { l0s: false, l1: true }));
    assert_eq!(f.wake.takes_l1.as_deref(), Some("<32us"));
    assert_eq!(f.wake.takes_l0s, None);
}

#[test]
fn nvme__uses_checksums_from_end_to_end_and_all_tags() {
    let f = parse_one(sample!("nvme.txt"));
    assert_eq!((f.link_can, f.link_is), (shape(4, 4), shape(4, 4)));
    assert_eq!(f.ecrc, Some(true));
    assert_eq!(f.tags_is, Some(768));
    assert_eq!(f.errors.corrected, Some(false));
    // Older versions abbreviated the flags.
    let older = sample!("nvme.txt")
        .replace("ECRCGenCap", "GenCap")
        .replace("ECRCGenEn+", "CGenEn-")
        .replace("ECRCChkCap", "ChkCap")
        .replace("ECRCChkEn", "ChkEn");
    assert_eq!(parse_one(&older).ecrc, Some(false));
}

#[test]
fn host__has_every_kind_of_device_in_its_form_with_numbers() {
    let all = parse(sample!("host.txt")).unwrap();
    let addresses: Vec<&str> = all.iter().map(|f| f.address.as_str()).collect();
    assert_eq!(
        addresses,
        [
            "0000:00:02.0",
            "0000:00:04.0",
            "0000:0a:03.0",
            "0000:16:00.0",
            "0000:17:00.0",
            "0000:41:00.0",
            "0000:65:00.0"
        ]
    );
    let [down, integrated, legacy, root, gpu, connectx, gone] = all.as_slice() else {
        panic!("{}", all.len());
    };
    assert_eq!(down.link_is.lanes, Some(0));
    assert_eq!(integrated.port, Some(PortType::Integrated));
    assert_eq!(integrated.link_is, LinkShape::default());
    assert_eq!((legacy.shown, legacy.port), (CapabilityState::Absent, None));
    assert_eq!(legacy.latency_timer, Some(64));
    assert_eq!(root.port, Some(PortType::Root));
    assert_eq!((root.secondary, root.retrained), (Some(0x17), Some(true)));
    assert_eq!(gpu.bus(), Some(0x17));
    assert!(gpu.name.contains("[10de:2204]"), "{}", gpu.name);
    assert_eq!(connectx.link_is, shape(2, 8));
    assert!(!gone.answers && gpu.answers);
}

#[test]
fn text__cut_anywhere_loses_what_stands_behind_and_nothing_else() {
    let whole = parse_one(OLD);
    let mut known = 0;
    for end in (0..=OLD.len()).filter(|end| OLD.is_char_boundary(*end)) {
        let Ok(functions) = parse(&OLD[..end]) else {
            assert_eq!(known, 0, "the text up to {end} was read, and more is not");
            continue;
        };
        let f = &functions[0];
        assert!(f.payload_is.is_none() || f.payload_is == whole.payload_is);
        assert!(f.link_can == whole.link_can || f.link_is.lanes.is_none());
        known = known.max(usize::from(f.link_is.lanes.is_some()));
    }
    assert_eq!(known, 1);
    let before = parse_one(&OLD[..OLD.find("\tCapabilities: [60]").unwrap()]);
    assert_eq!((before.shown, before.port), (CapabilityState::CutOff, None));
    assert_eq!(before.link_by_name().generation, Some(2));
    let cut = parse_one(&OLD[..OLD.find("\t\tDevCtl:").unwrap()]);
    assert_eq!((cut.shown, cut.payload_is), (CapabilityState::Registers, None));
    assert_eq!(cut.payload_can, Some(256));
}

#[test]
fn text__in_other_clothes_is_the_same() {
    let whole = parse_one(OLD);
    let spaces = OLD.replace('\t', "        ");
    let flat: String = OLD.lines().map(|l| l.trim().to_owned() + "\n").collect();
    let quoted: String = OLD.lines().map(|l| format!("> {l}\r\n")).collect();
    let marked = format!("\u{feff}{OLD}");
    for text in [spaces, flat, quoted, marked] {
        assert_eq!(parse_one(&text), whole);
    }
}

#[test]
fn capabilities__that_are_not_shown_are_told_apart() {
    let denied = "01:00.0 Ethernet controller: A card\n\tFlags: bus master\n\tCapabilities: \
        <access denied>\n";
    assert_eq!(parse_one(denied).shown, CapabilityState::Denied);
    let brief = "01:00.0 Ethernet controller: A card\n\tFlags: bus master\n\tCapabilities: [60] \
        Express Endpoint, MSI 00\n";
    let f = parse_one(brief);
    assert_eq!((f.shown, f.port), (CapabilityState::NameOnly, Some(PortType::Endpoint)));
    let none = "00:1f.0 ISA bridge: A bridge\n\tControl: I/O+\n\tStatus: Cap- 66MHz-\n";
    assert_eq!(parse_one(none).shown, CapabilityState::Absent);
}

#[test]
fn registers__without_a_device_are_taken_too() {
    let f = parse_one(
        "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n\t\tLnkSta:\tSpeed 8GT/s (downgraded), \
         Width x16 (ok)\n",
    );
    assert_eq!((f.link_can, f.link_is), (shape(4, 16), shape(3, 16)));
    assert_eq!((f.address.as_str(), f.bus()), ("", None));
}

#[test]
fn values__that_no_link_has_are_not_taken() {
    let odd = OLD
        .replace("Width x8", "Width x3")
        .replace("Speed 5GT/s", "Speed 7GT/s")
        .replace("MaxPayload 256", "MaxPayload 300")
        .replace("RCB 64", "RCB 32");
    let f = parse_one(&odd);
    assert_eq!((f.link_can, f.link_is), Default::default());
    assert_eq!((f.payload_can, f.payload_is, f.rcb), (None, None, None));
    let said = f.unread.join("\n");
    for part in [
        "LnkSta has `Width x3`",
        "1, 2, 4, 8, 12, 16 or 32",
        "LnkCap has `Speed 7GT/s`",
        "`MaxPayload 300`, which is not a power of two from 128 to 4096",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn text__of_something_else_is_refused_with_what_was_expected() {
    let cases = [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("hello\nworld\n", "not output of lspci: `hello`"),
        ("41:00.0 InfiniBand: A card\n42:00.0 InfiniBand: Another\n", "without their registers"),
        ("00:00.0 \"Host bridge\" \"A maker\" \"Device 0d57\" -p00 \"\" \"\"\n", "lspci (-mm)"),
        ("Slot:\t00:00.0\nClass:\tHost bridge\n", "lspci (-mm)"),
        ("-[0000:00]-+-00.0\n           +-01.0\n", "tree of buses"),
    ];
    for (text, wanted) in cases {
        let said = parse(text).unwrap_err().to_string();
        assert!(said.contains(wanted), "{said}");
        assert!(said.contains("run `lspci -vv` as root and pass its output"), "{said}");
    }
    let usb = "Bus 001 Device 001: ID 1d6b:0002 Linux Foundation 2.0 root hub\n";
    assert!(matches!(parse(usb), Err(e) if e.to_string().contains("not output of lspci")));
}

#[test]
fn names__lose_what_a_terminal_would_obey() {
    let f = parse_one("01:00.0 A\u{1b}[31mcard\u{7}\n\tControl: I/O+\n");
    assert!(!f.name.chars().any(char::is_control), "{:?}", f.name);
}

#[test]
fn line__of_any_length_is_cut() {
    for part in ["a", "\u{0}", "\u{e4}\u{20ac}"] {
        let long = part.repeat(3 << 20);
        assert!(matches!(parse(&long), Err(e) if e.to_string().contains("not output of lspci")));
        // A device with such a long line below it is still parsed.
        let text = format!("41:00.0 A card\n\tLnkSta: Speed 5GT/s, Width x8\n\t{long}\n");
        let functions = parse(&text).unwrap();
        assert_eq!(functions[0].link_is.lanes, Some(8));
    }
    assert!(cut_lines(&"\u{20ac}".repeat(2000)).all(|line| line.len() <= LINE_MAX));
}
