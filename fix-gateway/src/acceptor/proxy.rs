//! The PROXY protocol, versions 1 and 2: the client's address behind a load balancer.
//!
//! The header is accepted from configured proxies only, and is required from them: a connection that bypasses the
//! proxy, or a proxy without the header, must not be taken for a counterparty. Exactly the header is read, so that the
//! following bytes (for example a TLS handshake) remain unread.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use ppp::{HeaderResult, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The shortest header of version 1 has 15 bytes, and 12 are the signature of version 2.
const SIGNATURE: usize = 12;
/// The maximum length of a version 1 header (specification, section 2.1).
const V1_MAX: usize = 107;
/// The maximum length of addresses and extensions of version 2: more than any proxy sends.
const V2_MAX: usize = 1024;

/// Reads one header. `None`: the connection is the proxy's own (`LOCAL`, `UNKNOWN`), as for health checks.
pub(crate) async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut header = vec![0; SIGNATURE];
    stream.read_exact(&mut header).await?;
    if header == v2::PROTOCOL_PREFIX {
        read_rest_of_v2(stream, &mut header).await?;
    } else if header.starts_with(b"PROXY ") {
        read_rest_of_v1(stream, &mut header).await?;
    } else {
        return Err(invalid("no PROXY header"));
    }
    source(&header)
}

async fn read_rest_of_v1(stream: &mut (impl AsyncRead + Unpin), header: &mut Vec<u8>) -> io::Result<()> {
    // The length is known only at the header's end, and later bytes must remain unread.
    while !header.ends_with(b"\r\n") {
        if header.len() >= V1_MAX {
            return Err(invalid("PROXY header too long"));
        }
        header.push(stream.read_u8().await?);
    }
    Ok(())
}

async fn read_rest_of_v2(stream: &mut (impl AsyncRead + Unpin), header: &mut Vec<u8>) -> io::Result<()> {
    let [version_and_command, family] = [stream.read_u8().await?, stream.read_u8().await?];
    let length = stream.read_u16().await?;
    header.extend([version_and_command, family]);
    header.extend(length.to_be_bytes());
    let (begin, length) = (header.len(), usize::from(length));
    if length > V2_MAX {
        return Err(invalid("PROXY header too long"));
    }
    header.resize(begin + length, 0);
    stream.read_exact(&mut header[begin..]).await?;
    Ok(())
}

fn source(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    let addr = |ip: IpAddr, port| Ok(Some(SocketAddr::new(ip.to_canonical(), port)));
    match HeaderResult::parse(header) {
        HeaderResult::V1(Ok(header)) => match header.addresses {
            v1::Addresses::Tcp4(tcp) => addr(tcp.source_address.into(), tcp.source_port),
            v1::Addresses::Tcp6(tcp) => addr(tcp.source_address.into(), tcp.source_port),
            v1::Addresses::Unknown => Ok(None),
        },
        HeaderResult::V2(Ok(header)) => match (header.command, header.protocol, header.addresses) {
            (v2::Command::Local, _, _) => Ok(None),
            (v2::Command::Proxy, v2::Protocol::Stream, v2::Addresses::IPv4(tcp)) => {
                addr(tcp.source_address.into(), tcp.source_port)
            }
            (v2::Command::Proxy, v2::Protocol::Stream, v2::Addresses::IPv6(tcp)) => {
                addr(tcp.source_address.into(), tcp.source_port)
            }
            (v2::Command::Proxy, _, _) => Err(invalid("PROXY header for no TCP connection")),
        },
        HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => Err(invalid("malformed PROXY header")),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [v2::PROTOCOL_PREFIX, &[command, family], &length, rest].concat()
    }

    /// Reads a header in front of `rest`; the rest must remain unread.
    async fn read(header: &[u8]) -> io::Result<Option<SocketAddr>> {
        let bytes = [header, b"8=FIX"].concat();
        let mut stream = bytes.as_slice();
        let found = read_header(&mut stream).await?;
        assert_eq!(stream, b"8=FIX");
        Ok(found)
    }

    #[tokio::test]
    async fn both_versions_give_the_source_and_leave_later_bytes() {
        let v1 = read(b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 9880\r\n").await.unwrap();
        assert_eq!(v1, Some("203.0.113.7:4711".parse().unwrap()));
        let v1 = read(b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 9880\r\n").await.unwrap();
        assert_eq!(v1, Some("[2001:db8::7]:4711".parse().unwrap()));
        let ports = [4711_u16.to_be_bytes(), 9880_u16.to_be_bytes()].concat();
        let v4 = [&[203, 0, 113, 7, 192, 0, 2, 1][..], &ports].concat();
        assert_eq!(read(&v2(0x21, 0x11, &v4)).await.unwrap(), Some("203.0.113.7:4711".parse().unwrap()));
        // With an extension after the addresses.
        let extended = [&v4[..], &[0x04, 0, 1, 42]].concat();
        assert_eq!(
            read(&v2(0x21, 0x11, &extended)).await.unwrap(),
            Some("203.0.113.7:4711".parse().unwrap())
        );
        let mapped: std::net::Ipv6Addr = "::ffff:203.0.113.7".parse().unwrap();
        let v6 = [&mapped.octets()[..], &[0; 16], &ports].concat();
        assert_eq!(read(&v2(0x21, 0x21, &v6)).await.unwrap(), Some("203.0.113.7:4711".parse().unwrap()));
    }

    #[tokio::test]
    async fn an_unknown_or_local_header_has_no_source() {
        assert_eq!(read(b"PROXY UNKNOWN\r\n").await.unwrap(), None);
        assert_eq!(read(&v2(0x20, 0, b"")).await.unwrap(), None);
    }

    #[tokio::test]
    async fn an_invalid_header_is_refused() {
        let long = format!("PROXY TCP4 {}", "1".repeat(200));
        let udp = v2(0x21, 0x12, &[0; 12]);
        let cases: [&[u8]; 8] = [
            b"8=FIX.4.4\x019=5\x0135=0\x0110=0",
            b"PROXY TCP4 203.0.113.7 192.0.2.1 4711\r\n",
            b"PROXY TCP4 2001:db8::7 192.0.2.1 1 2\r\n",
            b"PROXY TCP4 203.0.113.7 192.0.2.1 99999 2\r\n",
            b"PROXY SCTP 203.0.113.7 192.0.2.1 1 2\r\n",
            long.as_bytes(),
            &udp,
            b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c123456789012",
        ];
        for case in cases {
            assert!(read_header(&mut &case[..]).await.is_err(), "{}", String::from_utf8_lossy(case));
        }
        let huge = [v2::PROTOCOL_PREFIX, &[0x21, 0x11, 0xff, 0xff]].concat();
        let error = read_header(&mut huge.as_slice()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "not waited for: {error}");
    }

    #[tokio::test]
    async fn a_truncated_header_is_refused() {
        let whole = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 9880\r\n";
        for cut in 0..whole.len() {
            assert!(read_header(&mut &whole[..cut]).await.is_err(), "{cut}");
        }
    }
}
