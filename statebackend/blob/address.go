package blob

import (
	"fmt"
	"io/fs"
	"strings"
)

// reserved begins the parts of names that drivers keep for themselves.
const reserved = ".weir-"

// CheckName returns ErrName for a name that no bucket takes: names are relative paths without empty parts, "." and "..", and no part
// begins with ".weir-".
func CheckName(name string) error {
	if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\x00\\") ||
		strings.HasPrefix(name, reserved) || strings.Contains(name, "/"+reserved) {
		return fmt.Errorf("%w: %q", ErrName, name)
	}
	return nil
}

// Join returns the address of what is called name below the address of a bucket or folder: the query stays at the end.
func Join(address, name string) string {
	path, query, found := strings.Cut(address, "?")
	path = strings.TrimSuffix(path, "/") + "/" + name
	if found {
		path += "?" + query
	}
	return path
}

// Split takes the last part off an address, which Join puts back.
func Split(address string) (dir, name string) {
	path, query, found := strings.Cut(address, "?")
	cut := strings.LastIndexByte(path, '/')
	dir, name = path[:max(cut, 0)], path[cut+1:]
	if found {
		dir += "?" + query
	}
	return dir, name
}
