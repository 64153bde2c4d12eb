//! Reads an older form: a deserializer around another one, which ends each struct that has grown where it ended
//! then. Everything else goes through unchanged.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::Form;

/// A value, a deserializer or an access that belongs to a form.
pub struct Reading<T> {
    form: Form,
    inner: T,
}

impl<T> Reading<T> {
    pub fn new(form: Form, inner: T) -> Self {
        Self { form, inner }
    }

    fn wrap<U>(&self, inner: U) -> Reading<U> {
        Reading {
            form: self.form,
            inner,
        }
    }
}

/// Reads one value of the form.
impl Form {
    pub fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        match self == Self::NEWEST {
            true => T::deserialize(from),
            false => T::deserialize(Reading::new(self, from)),
        }
    }
}

/// Forwards what holds nothing that could have grown.
macro_rules! forward {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Reading<D> {
    type Error = D::Error;

    forward! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_ignored_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_option(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_seq(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Self::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_tuple(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_tuple_struct(name, len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_map(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let fields = shortened(fields, self.form.fields(name));
        let visitor = Visiting::of(self.form, visitor);
        self.inner.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let known = shortened(variants, self.form.variants(name));
        let mut visitor = Visiting::of(self.form, visitor);
        visitor.of_enum = Some((name, known));
        self.inner.deserialize_enum(name, known, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

fn shortened(names: &'static [&'static str], count: Option<usize>) -> &'static [&'static str] {
    count.and_then(|count| names.get(..count)).unwrap_or(names)
}

/// A visitor that hands on what it gets with the form.
struct Visiting<V> {
    form: Form,
    /// The enum whose case comes next, with the cases that it has in the form.
    of_enum: Option<(&'static str, &'static [&'static str])>,
    inner: V,
}

impl<V> Visiting<V> {
    fn of(form: Form, inner: V) -> Self {
        Self {
            form,
            of_enum: None,
            inner,
        }
    }
}

/// Forwards scalars, which only self-describing forms hand to a visitor of something else.
macro_rules! forward_visits {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<Self::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Visiting<V> {
    type Value = V::Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(to)
    }

    forward_visits! {
        visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) visit_string(String)
        visit_bytes(&[u8])
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        self.inner.visit_some(Reading::new(self.form, from))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        self.inner.visit_newtype_struct(Reading::new(self.form, from))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
        self.inner.visit_seq(Reading::new(self.form, access))
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
        self.inner.visit_map(Reading::new(self.form, access))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
        let case = Case {
            of_enum: self.of_enum,
            inner: access,
        };
        self.inner.visit_enum(Reading::new(self.form, case))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Reading<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let seed = self.wrap(seed);
        self.inner.next_element_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Reading<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let seed = self.wrap(seed);
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.wrap(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Reading<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T::Value, D::Error> {
        self.inner.deserialize(Reading::new(self.form, from))
    }
}

/// The case of an enum, before its number is read.
struct Case<A> {
    of_enum: Option<(&'static str, &'static [&'static str])>,
    inner: A,
}

/// What a case holds, once its number is known.
pub struct Content<A> {
    name: &'static str,
    variant: Option<&'static str>,
    inner: A,
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Reading<Case<A>> {
    type Error = A::Error;
    type Variant = Reading<Content<A::Variant>>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self::Variant), A::Error> {
        let mut number = None;
        let counted = Counted {
            number: &mut number,
            inner: seed,
        };
        let (value, access) = self.inner.inner.variant_seed(counted)?;
        let (name, variants) = self.inner.of_enum.unwrap_or(("", &[]));
        let content = Content {
            name,
            variant: number.and_then(|number| variants.get(number as usize).copied()),
            inner: access,
        };
        Ok((value, Reading::new(self.form, content)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Reading<Content<A>> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.wrap(seed);
        self.inner.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = Visiting::of(self.form, visitor);
        self.inner.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let count = self
            .inner
            .variant
            .and_then(|variant| self.form.variant_fields(self.inner.name, variant));
        let visitor = Visiting::of(self.form, visitor);
        self.inner.inner.struct_variant(shortened(fields, count), visitor)
    }
}

/// A seed for the number of a case that notes the number as it goes by.
struct Counted<'n, T> {
    number: &'n mut Option<u32>,
    inner: T,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Counted<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T::Value, D::Error> {
        let number = u32::deserialize(from)?;
        *self.number = Some(number);
        self.inner
            .deserialize(serde::de::value::U32Deserializer::<D::Error>::new(number))
    }
}
