//go:build !clockfault

package daemon

import "time"

// clock is the controller's clock: the machine's.
func clock() time.Time { return time.Now() }
