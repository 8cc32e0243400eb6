use super::*;

/// A text of that format as read: addresses, and true for each that is written.
fn read(text: &str, format: Format) -> Result<Vec<(u64, bool)>, String> {
    let trace = Trace::of("t", text.as_bytes(), format).map_err(|error| error.to_string())?;
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
    let trace = Trace::of("t", &numbers, Format::U64).unwrap();
    assert_eq!(trace.addresses(), [5, 1 << 40]);
    let mut record = vec![0; 24];
    record[4] = 9;
    let trace = Trace::of("t", &record, Format::OracleGeneral).unwrap();
    assert_eq!(trace.addresses(), [9]);
    for (cut, format) in [
        (&numbers[..12], Format::U64),
        (&record[..23], Format::OracleGeneral),
    ] {
        let error = Trace::of("t", cut, format).unwrap_err().to_string();
        assert!(error.contains(":byte "), "{error}");
    }
    assert!(matches!(
        Trace::of("t", &[], Format::U64),
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
