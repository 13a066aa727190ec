//! Access to the server: strangers on the same machine and in the network, web pages, and clients that want
//! to keep others out.

mod commands;
mod flood;
mod logs;
mod pages;
mod proxy;
mod remote;
mod users;
mod wire;
