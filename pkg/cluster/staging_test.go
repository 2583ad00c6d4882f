package cluster

import (
	"errors"
	"strings"
	"testing"
)

func TestStaging(t *testing.T) {
	for text, want := range map[string]Staging{
		"a=s3://bucket/k":                    {Path: "a", URL: "s3://bucket/k"},
		"a/b=s3://bucket/k=1/":               {Path: "a/b", URL: "s3://bucket/k=1/"},
		"a/=rsync://user@host:873/m/a/":      {Path: "a", URL: "rsync://user@host:873/m/a/"},
		".=s3://bucket/all/":                 {Path: ".", URL: "s3://bucket/all/"},
		"a b=https://[::1]:80/x?y=/../z&u=@": {Path: "a b", URL: "https://[::1]:80/x?y=/../z&u=@"},
	} {
		if got, err := ParseStaging(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "=", "a", "a=", "=s3://bucket/k", "/a=s3://bucket/k", "..=s3://bucket/k", "a/..=s3://bucket/k", "a//b=s3://bucket/k", "./a=s3://bucket/k", ".=s3://bucket/k",
		"/=s3://bucket/k/", "a/=s3://bucket/k", "a=s3:///k", "a=s3://bucket", "a=s3://bucket/", "a=s3://BUCKET/k", "a=s3://b/k", "a=s3://bucket/../k", "a=s3://bucket/./k",
		"a=s3://user@bucket/k", "a=s3://bucket/k?x", "a=s3://bucket/k#x", "a=https://host/x/", "a=https://host/x?y/", "a=https://u:p@host/x", "a=https://u@host/x",
		"a=rsync://u:p@host/m/x", "a=rsync://@host/m/x", "a=rsync://-oProxyCommand=x/m/x", "a=rsync://a b/m/x", "a=rsync:host/x", "a=file:///etc/passwd", "a=ftp://host/x",
		"a=HTTPS://host/x", "a\n=s3://bucket/k", "a=s3://bucket/\x1b", "a=s3://bucket/\u202e", "a=s3://bucket/\xff", "a=s3://bucket/" + strings.Repeat("k", maxText),
	} {
		if got, err := ParseStaging(text); !errors.Is(err, ErrStaging) {
			t.Errorf("%.60q: %+v, %v", text, got, err)
		}
	}
}

// TestBurstBounds: what a job says about leased nodes and staging is refused outside the bounds.
func TestBurstBounds(t *testing.T) {
	many := make([]Staging, maxStaging+1)
	for i := range many {
		many[i] = Staging{Path: strings.Repeat("p", i+1), URL: "s3://bucket/" + strings.Repeat("k", i+1)}
	}
	long := []Staging{{Path: strings.Repeat("p", maxText), URL: "s3://bucket/k"}, {Path: strings.Repeat("q", maxText), URL: "s3://bucket/l"}}
	long = append(long, Staging{Path: strings.Repeat("r", maxText), URL: "s3://bucket/m"}, Staging{Path: strings.Repeat("s", maxText), URL: "s3://bucket/n"})
	for want, change := range map[string]func(*JobSpec){
		"unknown mode": func(s *JobSpec) { s.Burst.Mode = BurstOnly + 1 },
		"market 3":     func(s *JobSpec) { s.Burst.Market = OnDemand + 1 },
		"--burst-max-cost=-0.000001 is out of range": func(s *JobSpec) { s.Burst.MaxCost = -1 },
		"out of range (0 to 10000000":                func(s *JobSpec) { s.Burst.MaxCost = MaxMoney + 1 },
		"33 regions":                                 func(s *JobSpec) { s.Burst.Regions = make([]string, 33) },
		"region \"r\" is named twice":                func(s *JobSpec) { s.Burst.Regions = []string{"r", "r"} },
		"one region has no name":                     func(s *JobSpec) { s.Burst.Regions = []string{""} },
		"control character":                          func(s *JobSpec) { s.Burst.Regions = []string{"\n"} },
		"stage-in: 65 files":                         func(s *JobSpec) { s.StageIn = many },
		"another entry names":                        func(s *JobSpec) { s.StageOut = []Staging{many[0], many[0]} },
		"stage-out: invalid staging":                 func(s *JobSpec) { s.StageOut = []Staging{{Path: "..", URL: "s3://bucket/k"}} },
		"to stage have":                              func(s *JobSpec) { s.StageIn = long },
	} {
		s := &JobSpec{}
		change(s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
