package acct

import (
	"testing"
	"time"
)

func TestParseWhen(t *testing.T) {
	zone := time.FixedZone("here", 2*3600)
	now := time.Date(2026, 11, 21, 15, 30, 5, 700, zone)
	for word, want := range map[string]string{
		"now": "2026-11-21T15:30:05", "today": "2026-11-21T00:00:00", "midnight": "2026-11-21T00:00:00", "NOON": "2026-11-21T12:00:00",
		"elevenses": "2026-11-21T11:00:00", "fika": "2026-11-21T15:00:00", "teatime": "2026-11-21T16:00:00",
		"yesterday": "2026-11-20T00:00:00", "tomorrow": "2026-11-22T00:00:00",
		"now-2days": "2026-11-19T15:30:05", "now-60": "2026-11-21T15:29:05", "now-1h": "2026-11-21T14:30:05", "now-5min": "2026-11-21T15:25:05",
		"now-1week": "2026-11-14T15:30:05", "now+3minutes": "2026-11-21T15:33:05", "today-1day": "2026-11-20T00:00:00", "midnight-2hours": "2026-11-20T22:00:00",
		"8:05": "2026-11-21T08:05:00", "16:00": "2026-11-21T16:00:00", "4:00pm": "2026-11-21T16:00:00", "12:30am": "2026-11-21T00:30:00", "8:05:59": "2026-11-21T08:05:59",
		"1121": "2026-11-21T00:00:00", "1122": "2025-11-22T00:00:00", "0229": "2024-02-29T00:00:00", "010225": "2025-01-02T00:00:00",
		"11/20": "2026-11-20T00:00:00", "11/20/25": "2025-11-20T00:00:00", "3/4": "2026-03-04T00:00:00", "11.20": "2026-11-20T00:00:00", "11.20.24": "2024-11-20T00:00:00",
		"1120-08:00": "2026-11-20T08:00:00", "11/20-08:00:30": "2026-11-20T08:00:30", "11/20/25-08:00": "2025-11-20T08:00:00",
		"2026-11-20": "2026-11-20T00:00:00", "2026-11-20T08:00": "2026-11-20T08:00:00", "2026-11-20t08:00:01": "2026-11-20T08:00:01",
		"2026-11-20 08:00": "2026-11-20T08:00:00", "2026-11-20-08:00": "2026-11-20T08:00:00", "2026-11-20T08:00:00Z": "2026-11-20T10:00:00",
		"uts1763712000": "2025-11-21T10:00:00", " now ": "2026-11-21T15:30:05",
	} {
		got, err := ParseWhen(word, now)
		if err != nil || got.Format("2006-01-02T15:04:05") != want {
			t.Errorf("%q is %s, %v; want %s", word, got, err, want)
		}
	}
	for _, word := range []string{
		"", "later", "now-", "now-x", "now-1fortnight", "now-99999999999h", "24:00", "1:2:3:4", "13:00pm", "8", "1322", "0230", "2026-13-01",
		"2026-02-30", "9999-01-01", "1960-01-01", "2026-11-20x08:00", "2026-11-20T", "11/20-", "-", "t", "uts", "uts-1", "now-2daysago", "8:5:", "11/20/25/26",
	} {
		if got, err := ParseWhen(word, now); err == nil {
			t.Errorf("%q is taken for %s", word, got)
		}
	}
}

func FuzzParseWhen(f *testing.F) {
	for _, word := range []string{"now-2days", "1121-08:00", "11/21/26-8:00pm", "2026-11-21T08:00:00", "uts5", "midnight+1w", "0229", "8:05"} {
		f.Add(word)
	}
	now := time.Date(2026, 11, 21, 15, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, word string) {
		got, err := ParseWhen(word, now)
		if err != nil {
			return
		}
		if d := got.Sub(now); d > farthest || d < -farthest || got.Unix() < 0 {
			t.Fatalf("%q is %s", word, got)
		}
		again, err := ParseWhen(got.Format("2006-01-02T15:04:05"), now)
		if err != nil || !again.Equal(got.Truncate(time.Second)) {
			t.Fatalf("%q is %s, which reads as %s, %v", word, got, again, err)
		}
	})
}
