// Package wire converts between the protocol's messages and the domain types, and is the only place
// that does.
//
// It decides how a value is written for a client or a node, and whether a message is valid, from
// the message alone: unknown words, times out of range, an invalid script. Whether the cluster can
// or may satisfy a request is the state's decision, and what a caller may see is that of package
// auth. It never panics on a message, whatever its content.
//
// Refusals are *command.Refusal, as everywhere.
package wire

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// refuse returns an error about a message.
func refuse(format string, args ...any) *command.Refusal {
	return &command.Refusal{Code: command.InvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// latest bounds times that a client names: the year 2200, in seconds since 1970. Sums with
// durations still fit.
const latest = 7258118400

// instant reads a time; an absent one is 0.
func instant(what string, t *timestamppb.Timestamp) (cluster.Instant, error) {
	if t == nil || t.GetSeconds() == 0 && t.GetNanos() == 0 {
		return 0, nil
	}
	if t.CheckValid() != nil || t.GetSeconds() < 0 || t.GetSeconds() > latest {
		return 0, refuse("%s is not a time between 1970 and 2200", what)
	}
	return cluster.InstantOf(t.AsTime()), nil
}

// duration reads a duration; an absent one is 0.
func duration(what string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	const most = 200 * 365 * 24 * time.Hour
	if d.CheckValid() != nil || d.AsDuration() < -most || d.AsDuration() > most {
		return 0, refuse("%s is not a length of time", what)
	}
	return d.AsDuration(), nil
}

// Timestamp writes an instant; 0 is absent.
func Timestamp(i cluster.Instant) *timestamppb.Timestamp {
	if i == 0 {
		return nil
	}
	return &timestamppb.Timestamp{Seconds: int64(i) / 1e9, Nanos: int32(int64(i) % 1e9)}
}
