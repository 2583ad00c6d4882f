package settings

import "time"

// ShippedOn is the date of the shipped prices.
const ShippedOn = "2026-07-20"

// maxShippedAge is for how long the shipped prices hold without a confirmation of the site.
const maxShippedAge = 365 * 24 * time.Hour

// shipped has list prices in USD of an hour on demand, Linux, shared tenancy.
var shipped = map[string]map[string]string{
	"us-east-1": {
		"g4dn.xlarge": "0.526", "g4dn.2xlarge": "0.752", "g4dn.4xlarge": "1.204", "g4dn.8xlarge": "2.176", "g4dn.12xlarge": "3.912",
		"g4dn.16xlarge": "4.352", "g4dn.metal": "7.824",
		"g5.xlarge": "1.006", "g5.2xlarge": "1.212", "g5.4xlarge": "1.624", "g5.8xlarge": "2.448", "g5.12xlarge": "5.672",
		"g5.16xlarge": "4.096", "g5.24xlarge": "8.144", "g5.48xlarge": "16.288",
		"g6.xlarge": "0.8048", "g6.2xlarge": "0.9776", "g6.4xlarge": "1.3232", "g6.8xlarge": "2.0144", "g6.12xlarge": "4.6016",
		"g6.16xlarge": "3.3968", "g6.24xlarge": "6.6752", "g6.48xlarge": "13.3504",
		"g6e.xlarge": "1.861", "g6e.2xlarge": "2.24208", "g6e.4xlarge": "3.00424", "g6e.8xlarge": "4.52856", "g6e.12xlarge": "10.49264",
		"g6e.16xlarge": "7.57719", "g6e.24xlarge": "15.06559", "g6e.48xlarge": "30.13118",
		"g7e.2xlarge": "3.36312", "g7e.4xlarge": "3.99816", "g7e.8xlarge": "5.26824", "g7e.12xlarge": "8.28608", "g7e.24xlarge": "16.57216",
		"g7e.48xlarge": "33.14432", "gr6.4xlarge": "1.5392", "gr6.8xlarge": "2.4464",
		"p3.2xlarge": "3.06", "p3.8xlarge": "12.24", "p3.16xlarge": "24.48", "p3dn.24xlarge": "31.212",
		"p4d.24xlarge": "21.957642", "p4de.24xlarge": "27.44705", "p5.4xlarge": "6.88", "p5.48xlarge": "55.04", "p5en.48xlarge": "63.296",
		"p6-b200.48xlarge": "113.9328", "p6-b300.48xlarge": "142.416",
		"c7i.4xlarge": "0.714", "c7i.8xlarge": "1.428", "c7i.12xlarge": "2.142", "c7i.24xlarge": "4.284", "c7i.48xlarge": "8.568",
		"m7i.4xlarge": "0.8064", "m7i.8xlarge": "1.6128", "m7i.12xlarge": "2.4192", "m7i.24xlarge": "4.8384", "m7i.48xlarge": "9.6768",
	},
}

// Price returns the price of an hour of a type on demand; "" if the file has none and the shipped one does not exist or
// is too old.
func (s *Settings) Price(region, name string, now time.Time) string {
	for _, p := range s.OnDemand.Prices {
		if p.Region == region && p.Type == name {
			return p.Price
		}
	}
	checked, _ := time.Parse(time.DateOnly, max(ShippedOn, s.OnDemand.Confirmed))
	if now.Sub(checked) > maxShippedAge {
		return ""
	}
	return shipped[region][name]
}
