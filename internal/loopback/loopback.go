// Package loopback knows the addresses that only this machine can reach.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
)

// Address returns host:port of a port on loopback.
func Address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Ports that FreePorts chooses from. Systems take the local ports of outgoing connections from above: one of those may take a port
// while the node it belongs to is being restarted.
const (
	firstPort = 10_000
	lastPort  = 32_000
)

// FreePorts returns n different ports that were free a moment ago, chosen at random so that programs that ask at the same time get
// others.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	var err error
	for tries := 0; len(ports) < n && tries < 100+2*n; tries++ {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var l net.Listener
		if l, err = net.Listen("tcp", Address(port)); err != nil {
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	if len(ports) < n {
		return nil, fmt.Errorf("find a free port: %w", err)
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
