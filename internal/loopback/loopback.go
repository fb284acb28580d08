// Package loopback knows the addresses that only this machine can reach.
package loopback

import (
	"fmt"
	"net"
	"strings"
)

// Address returns host:port of a port on loopback.
func Address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// FreePorts returns n different ports that were free a moment ago.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp", Address(0))
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Host reports whether a host, a name or an IP address, can only mean this machine.
func Host(host string) bool {
	if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost"
}

// Is reports whether the host of an address, host:port, can only mean this machine.
func Is(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && Host(host)
}
