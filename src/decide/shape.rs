//! Shapes of values that a binding may leave open.

/// Whether a text is an RFC 3339 time: `2026-11-30T16:06:51Z`, with or without fractions, with `Z` or an offset.
pub fn is_timestamp(text: &str) -> bool {
    let Some((date, rest)) = text.split_at_checked(10) else {
        return false;
    };
    let Some((time, rest)) = rest.split_at_checked(9) else {
        return false;
    };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    let zoned = zone == "Z" || fits(zone, "+00:00") || fits(zone, "-00:00");
    // The grammar here, the calendar there.
    fits(date, "0000-00-00")
        && fits(time, "T00:00:00")
        && zoned
        && text.parse::<jiff::Timestamp>().is_ok()
}

/// Whether digits stand where the pattern has `0`, and its own characters elsewhere.
fn fits(text: &str, pattern: &str) -> bool {
    let fits = |(byte, pattern): (u8, u8)| {
        if pattern == b'0' {
            byte.is_ascii_digit()
        } else {
            byte == pattern
        }
    };
    text.len() == pattern.len() && text.bytes().zip(pattern.bytes()).all(fits)
}

#[cfg(test)]
mod tests {
    use super::is_timestamp;

    #[test]
    fn only_rfc_3339_times_have_the_shape() {
        for text in [
            "2026-11-30T16:06:51Z",
            "2026-11-30T16:06:51.123456Z",
            "2026-11-30T18:06:51+02:00",
            "2024-02-29T00:00:00-11:30",
        ] {
            assert!(is_timestamp(text), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-11-30",
            "2026-11-30 16:06:51Z",
            "2026-11-30T16:06:51",
            "2026-13-30T16:06:51Z",
            "2026-02-30T16:06:51Z",
            "2026-11-30T16:06:51.Z",
            "2026-11-30T16:06:51z",
            "2026-11-30T16:06:51Zx",
            "2026-11-30T16:06:51+02",
            "2026-11-30T16:06:51Z[UTC]",
            "é26-11-30T16:06:51Z",
            "2026-11-30T24:06:51Z",
        ] {
            assert!(!is_timestamp(text), "{text}");
        }
    }
}
