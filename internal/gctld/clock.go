//go:build !clockfault

package gctld

import "time"

// clock is the controller's clock: the machine's.
func clock() time.Time { return time.Now() }
