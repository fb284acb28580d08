package config

import (
	"fmt"
	"net"
	"strconv"
)

// HostPort splits an address and checks that its port is a number that a port can be.
func HostPort(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", address)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q is not host:port with a port of 0 to 65535", address)
	}
	return host, port, nil
}
