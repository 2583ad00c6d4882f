package tool

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/accounting"
)

// FormatTime writes a time in this host's zone; "" for nil.
func (t *Tool) FormatTime(at *timestamppb.Timestamp) string {
	if at == nil {
		return ""
	}
	return at.AsTime().In(t.Now().Location()).Format(ui.TimeLayout)
}

// FormatMinute writes a time to the minute, for tables.
func (t *Tool) FormatMinute(at time.Time) string {
	return at.In(t.Now().Location()).Format("01-02T15:04")
}

// Timestamp converts a time of the API for JSON; nil when it is not set.
func Timestamp(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	return ui.Stamp(t.AsTime())
}

// ParseTime reads a time as users write it; nil for "".
func (t *Tool) ParseTime(word string) (*timestamppb.Timestamp, error) {
	if word == "" {
		return nil, nil
	}
	at, err := ui.ParseTime(word, t.Now())
	if err != nil {
		return nil, err
	}
	return timestamppb.New(at), nil
}

// FormatCredits writes an amount with two decimals, or as many as it needs.
func FormatCredits(micro int64) string { return accounting.Credits(micro).Short() }
