use super::*;

fn of_bytes(bytes: &[u8], format: Format) -> Result<Trace, TraceError> {
    Trace::of("t", bytes, format, &Reading::default())
}

fn of_file(path: &Path) -> Result<Trace, TraceError> {
    Trace::read(path, &Reading::default(), |_| true)
}

/// A text of that format as read: addresses, and true for each that is written.
fn read(text: &str, format: Format) -> Result<Vec<(u64, bool)>, String> {
    let trace = of_bytes(text.as_bytes(), format).map_err(|error| error.to_string())?;
    let address = |(page, write): (u32, bool)| (trace.addresses()[page as usize], write);
    Ok(trace.accesses().map(address).collect())
}

/// Pages of the `place`-th disk or file, read or written.
fn of(place: u64, pages: &[u64], write: bool) -> Vec<(u64, bool)> {
    pages
        .iter()
        .map(|page| (place << PLACE_BITS | page, write))
        .collect()
}

#[test]
fn pages_are_numbered_in_the_order_of_their_addresses() {
    let trace = Trace::of_reads(&[70, 7, 1 << 60, 7]);
    assert_eq!(trace.distinct(), 3);
    assert_eq!(trace.addresses(), [7, 70, 1 << 60]);
    let pages: Vec<u32> = trace.accesses().map(|(page, _)| page).collect();
    assert_eq!(pages, [1, 0, 2, 0]);
}

#[test]
fn a_number_a_line() {
    let text = "# a comment\n12\n\n0x10 w\n12,R\n";
    assert_eq!(
        read(text, Format::Numbers),
        Ok(vec![(12, false), (16, true), (12, false)])
    );
    for (text, line) in [("1\n2 x\n", 2), ("1\n\nlong\n", 3), ("-1", 1)] {
        let error = read(text, Format::Numbers).unwrap_err();
        assert!(error.starts_with(&format!("t:{line}: ")), "{error}");
    }
}

#[test]
fn binary_formats_are_whole_records() {
    let numbers: Vec<u8> = [5_u64, 1 << 40]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let trace = of_bytes(&numbers, Format::U64).unwrap();
    assert_eq!(trace.addresses(), [5, 1 << 40]);
    let mut record = vec![0; 24];
    record[4] = 9;
    let trace = of_bytes(&record, Format::OracleGeneral).unwrap();
    assert_eq!(trace.addresses(), [9]);
    for (cut, format) in [
        (&numbers[..12], Format::U64),
        (&record[..23], Format::OracleGeneral),
    ] {
        let error = of_bytes(cut, format).unwrap_err().to_string();
        assert!(error.contains(":byte "), "{error}");
    }
    assert!(matches!(
        of_bytes(&[], Format::U64),
        Err(TraceError::Empty { .. })
    ));
}

#[test]
fn a_request_of_msr_is_the_pages_that_its_bytes_lie_in() {
    let text =
        "128166372003061629,hm,0,Read,4095,2,100\n128166372016382155,hm,1,Write,8192,4096,9\n";
    let expected = [of(0, &[0, 1], false), of(1, &[2], true)].concat();
    assert_eq!(read(text, Format::Msr), Ok(expected));
    let error = read("1,hm,0,Trim,0,1,2\n", Format::Msr).unwrap_err();
    assert!(error.starts_with("t:1: "), "{error}");
}

#[test]
fn blkparse_counts_what_is_queued() {
    let text = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
                  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n\
                  8,0    3        3     0.000003829   697  Q   R 16 + 16 [dd]\n\
                  8,0    3        4     0.000003829   697  Q FWS [dd]\n\
                  8,0    3        5     0.000003829   697  Q  DS 16 + 16 [fstrim]\n\
                CPU0 (8,0):\n Reads Queued:  1, 8KiB\n";
    // 223490 is not on the edge of a page.
    let expected = [of(0, &[27936, 27937], true), of(0, &[2, 3], false)].concat();
    assert_eq!(read(text, Format::Blkparse), Ok(expected));
    let error = read("8,0 3 1 0.1 697 Q R x + 8 [dd]", Format::Blkparse).unwrap_err();
    assert!(error.starts_with("t:1: "), "{error}");
}

#[test]
fn of_perfs_events_the_ones_that_say_most_count() {
    let added = "dd 7 [0] 1.0: filemap:mm_filemap_add_to_page_cache: dev 8:1 ino 2a pfn=0x1 ofs=8192 order=1\n";
    let gets = "dd 7 [0] 1.0: filemap:mm_filemap_get_pages: dev=8:1 ino=2a ofs=0 max_ofs=8191\n";
    let fault = "cat 8 [1] 1.0: filemap:mm_filemap_fault: dev=8:1 ino=2b ofs=4096\n";
    let queued = "dd 7 [0] 1.0: block:block_bio_queue: 8,0 WS 16 + 8 [dd]\n";
    let sent = "dd 7 [0] 1.0: block:block_rq_issue: 8,0 R 4096 () 24 + 8 none,0,0 [dd]\n";
    let all = [added, gets, fault, queued, sent].concat();
    let expected = [of(0, &[0, 1], false), of(1, &[1], false)].concat();
    assert_eq!(read(&all, Format::Perf), Ok(expected));
    let without = [added, queued, sent].concat();
    assert_eq!(read(&without, Format::Perf), Ok(of(0, &[2, 3], false)));
    let blocks = [queued, sent].concat();
    assert_eq!(read(&blocks, Format::Perf), Ok(of(0, &[2], true)));
    assert_eq!(read(sent, Format::Perf), Ok(of(0, &[3], false)));
    let error = read(&gets.replace("ofs=0", "ofs=?"), Format::Perf).unwrap_err();
    assert!(error.starts_with("t:1: "), "{error}");
}

#[test]
fn a_format_is_known_by_its_name_or_its_lines() {
    for (name, text, format) in [
        ("a.u64", "", Format::U64),
        ("a.oracleGeneral", "", Format::OracleGeneral),
        ("a.csv", "", Format::Msr),
        ("a", "1\n2\n", Format::Numbers),
        ("a", "x\n 8,0 3 1 0.0 697 Q W 2 + 8 [x]\n", Format::Blkparse),
        (
            "a",
            "dd 7 [0] 1.0: block:block_bio_queue: 8,0 W",
            Format::Perf,
        ),
        ("a.txt", "1,hm,0,Read,0,4096,1\n", Format::Msr),
    ] {
        assert_eq!(Format::of(name, text.as_bytes()), format, "{name} {text}");
    }
}

/// A line of a request in each format that has requests: of how many sectors at which, by which
/// place.
type Line = fn(u64, u64, &str) -> String;
const REQUESTS: [(Format, Line); 4] = [
    (Format::Msr, |at, sectors, place| {
        let (at, len) = (u128::from(at) * 512, u128::from(sectors) * 512);
        format!("1,{place},0,Read,{at},{len},1\n")
    }),
    (Format::Blkparse, |at, sectors, place| {
        let minor: u32 = place.parse().unwrap_or(0);
        format!("8,{minor} 3 1 0.1 697 Q R {at} + {sectors} [dd]\n")
    }),
    (Format::Perf, |at, sectors, place| {
        format!("dd 7 [0] 1.0: block:block_bio_queue: {place} R {at} + {sectors} [dd]\n")
    }),
    (Format::Perf, |at, sectors, place| {
        let (from, last) = (
            u128::from(at) * 512,
            (u128::from(at) + u128::from(sectors)) * 512,
        );
        format!(
            "dd 7 [0] 1.0: filemap:mm_filemap_get_pages: dev 8:1 ino {place} ofs={from} max_ofs={}\n",
            last - 1
        )
    }),
];

#[test]
fn no_request_is_beyond_what_linux_sends_nor_folds_onto_another_page() {
    let most = REQUEST_MOST >> SECTOR_SHIFT;
    let beyond = 1 << (PLACE_BITS + PAGE_SHIFT - SECTOR_SHIFT);
    for (format, line) in REQUESTS {
        let first = line(0, 8, "1");
        let pages = |text: &str| read(text, format).map(|all| all.len());
        assert_eq!(pages(&(first.clone() + &line(beyond - 8, 8, "1"))), Ok(2));
        // Columns that are exchanged, and numbers as large as can be written.
        for (at, sectors) in [
            (0, most + 1),
            (8, 1 << 34),
            (0, u64::MAX >> 9),
            (beyond, 8),
            (beyond - 8, 16),
            (u64::MAX >> 10, 8),
            (u64::MAX, 8),
            (u64::MAX, u64::MAX),
        ] {
            let error = pages(&(first.clone() + &line(at, sectors, "1"))).unwrap_err();
            assert!(
                error.starts_with("t:2: "),
                "{format:?} {at}+{sectors}: {error}"
            );
        }
    }
}

#[test]
fn as_many_places_as_accesses_are_read_in_no_time() {
    const PLACES: u32 = 300_000;
    for (format, line) in REQUESTS {
        let text: String = (0..PLACES)
            .map(|place| line(0, 8, &place.to_string()))
            .collect();
        let trace = of_bytes(text.as_bytes(), format).unwrap();
        assert_eq!(trace.distinct(), PLACES, "{format:?}");
    }
}

#[test]
fn a_packed_file_is_unpacked_or_its_program_is_named() {
    use std::io::Write as _;
    let dir = std::env::temp_dir().join(format!("tidegate-packed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text: String = (0..20_000).map(|page| format!("{page}\n")).collect();
    let gz = |text: &str| {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text.as_bytes()).unwrap();
        gz.finish().unwrap()
    };
    // One after the other, as logs are put together.
    let (a, b) = text.split_at(text.find("9000\n").unwrap());
    let pair = [gz(a), gz(b)].concat();
    for (name, bytes) in [("a.txt.gz", &pair), ("a", &pair), ("a.txt", &gz(&text))] {
        std::fs::write(dir.join(name), bytes).unwrap();
        let trace = of_file(&dir.join(name)).unwrap();
        assert_eq!((trace.len(), trace.distinct()), (20_000, 20_000), "{name}");
    }
    let zst = |text: &str| {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        ruzstd::encoding::compress_to_vec(text.as_bytes(), level)
    };
    // Frames, and between them one that is to be skipped.
    let frames = [&zst(a)[..], b"\x50\x2a\x4d\x18\x03\0\0\0abc", &zst(b)].concat();
    std::fs::write(dir.join("a.txt.zst"), &frames).unwrap();
    assert_eq!(of_file(&dir.join("a.txt.zst")).unwrap().len(), 20_000);
    let mut wrong = frames.clone();
    *wrong.last_mut().unwrap() ^= 1;
    for bytes in [&pair[..pair.len() / 3], &frames[..frames.len() / 3], &wrong] {
        std::fs::write(dir.join("cut"), bytes).unwrap();
        let error = of_file(&dir.join("cut")).unwrap_err();
        assert!(matches!(error, TraceError::Read { .. }), "{error}");
    }
    for (magic, name) in [
        (&b"BZh91AY"[..], "bzip2"),
        (b"\x04\x22\x4d\x18xyz", "lz4"),
        (b"PK\x03\x04xyz", "zip"),
        (b"7z\xbc\xaf\x27\x1cxyz", "7-Zip"),
    ] {
        let file = dir.join("trace.csv");
        std::fs::write(&file, magic).unwrap();
        let error = of_file(&file).unwrap_err().to_string();
        assert!(error.contains(&format!("packed by {name}")), "{error}");
    }
    // Numbers may begin so.
    let number = u64::from_le_bytes(*b"\x1f\x8b\x08\0\0\0\0\0");
    std::fs::write(dir.join("a.u64"), number.to_le_bytes()).unwrap();
    let trace = of_file(&dir.join("a.u64")).unwrap();
    assert_eq!(trace.addresses(), [number]);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_line_has_an_end() {
    let mut endless = "1\n".to_owned();
    endless.push_str(&"2".repeat(1 << 17));
    let error = read(&endless, Format::Numbers).unwrap_err();
    assert!(
        error.starts_with("t:2: a line of more than 64 KiB"),
        "{error}"
    );
}

#[test]
fn a_message_has_the_beginning_of_a_long_line() {
    let long = "x".repeat(5_000);
    for (format, _) in REQUESTS
        .into_iter()
        .chain([(Format::Numbers, REQUESTS[0].1)])
    {
        let text = match format {
            Format::Blkparse => format!("8,0 3 1 0.1 697 Q R {long} + 8 [dd]\n"),
            Format::Perf => format!("a: filemap:mm_filemap_fault: {long}\n"),
            _ => long.clone(),
        };
        let error = read(&text, format).unwrap_err();
        assert!(error.len() < 300, "{error}");
    }
}
