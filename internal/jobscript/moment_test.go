package jobscript

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		berlin = time.FixedZone("CET", 3600)
	}
	now := time.Date(2026, 11, 21, 15, 30, 0, 0, berlin)
	for word, want := range map[string]string{
		"now": "2026-11-21T15:30:00", "now+60": "2026-11-21T15:31:00", "now+1hour": "2026-11-21T16:30:00",
		"NOW+2days": "2026-11-23T15:30:00", "now+1w": "2026-11-28T15:30:00", "now+5min": "2026-11-21T15:35:00",
		"16:00": "2026-11-21T16:00:00", "15:00": "2026-11-22T15:00:00", "4:05:06pm": "2026-11-21T16:05:06",
		"12:00am": "2026-11-22T00:00:00", "12:30 PM": "2026-11-22T12:30:00", "today": "2026-11-21T15:30:00",
		"tomorrow": "2026-11-22T00:00:00", "midnight": "2026-11-22T00:00:00", "noon": "2026-11-22T12:00:00",
		"teatime": "2026-11-21T16:00:00", "2026-12-24": "2026-12-24T00:00:00", "2026-12-24T18:00": "2026-12-24T18:00:00",
		"2026-12-24T18:00:30": "2026-12-24T18:00:30", "12/24/26": "2026-12-24T00:00:00", "2026-12-24T18:00:00Z": "2026-12-24T19:00:00",
	} {
		got, err := ParseMoment(word, now)
		if err != nil || got.In(berlin).Format("2006-01-02T15:04:05") != want {
			t.Errorf("%q: %v, %v, want %s", word, got, err, want)
		}
	}
	for _, word := range []string{"", "later", "now-1", "now+", "now+x", "now+99999999999h", "24:00", "1:2:3:4", "13:00pm", "2026-13-01", "9999-01-01", "12", "now+1fortnight"} {
		if got, err := ParseMoment(word, now); err == nil {
			t.Errorf("%q is taken for %v", word, got)
		}
	}
}

func TestSignals(t *testing.T) {
	for word, want := range map[string]int32{"HUP": 1, "sigkill": 9, "TERM": 15, "USR1": 10, "SIGUSR2": 12, "cont": 18, "stop": 19, "SYS": 31, "64": 64, "1": 1} {
		if got, err := ParseSignal(word); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", word, got, err, want)
		}
	}
	for _, word := range []string{"", "0", "65", "-9", "NOPE", "SIG"} {
		if got, err := ParseSignal(word); err == nil {
			t.Errorf("%q is taken for %d", word, got)
		}
	}
}
