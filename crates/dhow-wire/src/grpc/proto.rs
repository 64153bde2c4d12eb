//! The types made from the protocol's description; nothing here is written by hand.

tonic::include_proto!("dhow.v1");
