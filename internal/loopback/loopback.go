// Package loopback finds addresses for servers on this machine alone.
package loopback

import (
	"fmt"
	"net"
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
