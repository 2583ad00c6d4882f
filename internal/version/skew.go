package version

import (
	"strconv"
	"strings"
)

// Compatible reports whether programs of two versions may run in one cluster: their minor versions are
// equal or consecutive, such as 0.4.1 and 0.5.0, and their major versions are equal. Versions of
// another form, which development builds may have, are compatible with all.
func Compatible(a, b string) bool {
	major1, minor1, ok1 := parse(a)
	major2, minor2, ok2 := parse(b)
	if !ok1 || !ok2 {
		return true
	}
	return major1 == major2 && minor1 <= minor2+1 && minor2 <= minor1+1
}

// parse returns the first two numbers of a version.
func parse(v string) (major, minor int, ok bool) {
	first, rest, ok := strings.Cut(v, ".")
	if !ok {
		return 0, 0, false
	}
	second, _, _ := strings.Cut(rest, ".")
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	return major, minor, err1 == nil && err2 == nil && major >= 0 && minor >= 0
}
