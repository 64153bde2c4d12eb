//! Writes an older form: a serializer around another one, which leaves out the fields that the form does not
//! have and refuses the cases that it does not have.

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::Form;

/// A value, a serializer or a compound that belongs to a form.
pub struct Writing<T> {
    form: Form,
    /// Fields that are still to be written of a struct that has grown.
    left: Option<usize>,
    inner: T,
}

impl<T> Writing<T> {
    pub fn new(form: Form, inner: T) -> Self {
        Self {
            form,
            left: None,
            inner,
        }
    }

    /// Whether the next field belongs to the form.
    fn takes_field(&mut self) -> bool {
        match &mut self.left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

impl<T: Serialize> Serialize for Writing<&T>
where
    T: ?Sized,
{
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.form == Form::NEWEST {
            true => self.inner.serialize(to),
            false => self.inner.serialize(Writing::new(self.form, to)),
        }
    }
}

fn check_case<E: Error>(form: Form, name: &str, variant: &str, index: u32) -> Result<(), E> {
    if form.variants(name).is_some_and(|count| index as usize >= count) {
        return Err(E::custom(format!(
            "{name}::{variant} is not known to form {}",
            form.number()
        )));
    }
    Ok(())
}

macro_rules! forward {
    ($($method:ident($type:ty))*) => {$(
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        }
    )*};
}

impl<S: Serializer> Serializer for Writing<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Writing<S::SerializeSeq>;
    type SerializeTuple = Writing<S::SerializeTuple>;
    type SerializeTupleStruct = Writing<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Writing<S::SerializeTupleVariant>;
    type SerializeMap = Writing<S::SerializeMap>;
    type SerializeStruct = Writing<S::SerializeStruct>;
    type SerializeStructVariant = Writing<S::SerializeStructVariant>;

    forward! {
        serialize_bool(bool) serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_i128(i128) serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
        serialize_u128(u128) serialize_f32(f32) serialize_f64(f64) serialize_char(char) serialize_str(&str)
        serialize_bytes(&[u8]) serialize_unit_struct(&'static str)
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&Writing::new(self.form, value))
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        check_case(self.form, name, variant, index)?;
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = Writing::new(self.form, value);
        self.inner.serialize_newtype_struct(name, &value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        check_case(self.form, name, variant, index)?;
        let value = Writing::new(self.form, value);
        self.inner.serialize_newtype_variant(name, index, variant, &value)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Ok(Writing::new(self.form, self.inner.serialize_seq(len)?))
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        Ok(Writing::new(self.form, self.inner.serialize_tuple(len)?))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        let inner = self.inner.serialize_tuple_struct(name, len)?;
        Ok(Writing::new(self.form, inner))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        check_case(self.form, name, variant, index)?;
        let inner = self.inner.serialize_tuple_variant(name, index, variant, len)?;
        Ok(Writing::new(self.form, inner))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Ok(Writing::new(self.form, self.inner.serialize_map(len)?))
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        let left = self.form.fields(name);
        let len = left.map_or(len, |left| left.min(len));
        Ok(Writing {
            form: self.form,
            left,
            inner: self.inner.serialize_struct(name, len)?,
        })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        check_case(self.form, name, variant, index)?;
        let left = self.form.variant_fields(name, variant);
        let len = left.map_or(len, |left| left.min(len));
        Ok(Writing {
            form: self.form,
            left,
            inner: self.inner.serialize_struct_variant(name, index, variant, len)?,
        })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The compounds whose elements are all written.
macro_rules! compound {
    ($($trait:ident $method:ident)*) => {$(
        impl<C: $trait> $trait for Writing<C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                self.inner.$method(&Writing::new(self.form, value))
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        }
    )*};
}

compound! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

impl<C: SerializeMap> SerializeMap for Writing<C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.inner.serialize_key(&Writing::new(self.form, key))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.inner.serialize_value(&Writing::new(self.form, value))
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

/// The compounds with named fields.
macro_rules! with_fields {
    ($($trait:ident)*) => {$(
        impl<C: $trait> $trait for Writing<C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                if !self.takes_field() {
                    return Ok(());
                }
                self.inner.serialize_field(key, &Writing::new(self.form, value))
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        }
    )*};
}

with_fields! { SerializeStruct SerializeStructVariant }
