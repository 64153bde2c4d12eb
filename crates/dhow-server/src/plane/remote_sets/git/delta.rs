//! Objects that are written as the difference to another one.

/// The object that a delta makes of its base; none where the delta is not one of that base.
pub(super) fn applied(base: &[u8], delta: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
    let mut rest = delta;
    if size(&mut rest)? != base.len() as u64 {
        return None;
    }
    let result_bytes = size(&mut rest).filter(|bytes| *bytes <= max_bytes)?;
    let mut result = Vec::new();
    while let Some((op, after)) = rest.split_first() {
        rest = after;
        let part = match op & 0x80 {
            0 if *op == 0 => return None,
            0 => {
                let (part, after) = rest.split_at_checked(usize::from(*op))?;
                rest = after;
                part
            }
            _ => {
                let offset = number(*op, 0..4, &mut rest)?;
                let bytes = match number(*op >> 4, 0..3, &mut rest)? {
                    0 => 0x1_0000,
                    bytes => bytes,
                };
                base.get(offset..offset.checked_add(bytes)?)?
            }
        };
        if (result.len() + part.len()) as u64 > result_bytes {
            return None;
        }
        result.extend_from_slice(part);
    }
    (result.len() as u64 == result_bytes).then_some(result)
}

/// Seven bits a byte, the lowest first.
fn size(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..63).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The bytes of a number that the bits of an operation say are there.
fn number(bits: u8, places: std::ops::Range<u32>, rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for place in places {
        if bits & (1 << place) != 0 {
            let (byte, after) = rest.split_first()?;
            *rest = after;
            value |= usize::from(*byte) << (8 * place);
        }
    }
    Some(value)
}
