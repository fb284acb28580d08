package exchange

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Ports is a range of TCP ports, both ends included. The zero value stands for any port.
type Ports struct{ First, Last uint16 }

// ErrNoPort tells that every port of the range is in use.
var ErrNoPort = errors.New("every port is in use")

// listen listens on a free port of the range. It begins anywhere in it, so that workers that start together seldom try the same one.
func (p Ports) listen(host string) (net.Listener, error) {
	if p == (Ports{}) {
		return net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	n := int(p.Last) - int(p.First) + 1
	if n < 1 {
		return nil, fmt.Errorf("ports %d-%d are no range", p.First, p.Last)
	}
	start := rand.IntN(n)
	for i := range n {
		port := int(p.First) + (start+i)%n
		lis, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return lis, err
		}
	}
	return nil, fmt.Errorf("ports %d to %d of %s: %w; make worker_ports of the TaskManager larger: each worker process needs one",
		p.First, p.Last, host, ErrNoPort)
}
