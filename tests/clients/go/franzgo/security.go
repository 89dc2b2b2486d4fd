package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var login = regexp.MustCompile(`username="([^"]*)" password="([^"]*)"`)

// secured turns the properties of Java's clients, in the file that CLIENT_PROPERTIES names, into options.
func secured() ([]kgo.Opt, error) {
	path := os.Getenv("CLIENT_PROPERTIES")
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		key, value, _ := strings.Cut(line, "=")
		given[key] = value
	}
	trusted, err := os.ReadFile(given["ssl.truststore.location"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if store := given["ssl.keystore.location"]; store != "" {
		own, err := tls.LoadX509KeyPair(store, store)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	options := []kgo.Opt{kgo.DialTLSConfig(config)}
	if given["security.protocol"] == "SSL" {
		return options, nil
	}
	mechanism, err := mechanismOf(given)
	return append(options, kgo.SASL(mechanism)), err
}

func mechanismOf(given map[string]string) (sasl.Mechanism, error) {
	if given["sasl.mechanism"] == "OAUTHBEARER" {
		file := strings.TrimPrefix(given["sasl.oauthbearer.token.endpoint.url"], "file://")
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := os.ReadFile(file)
			return oauth.Auth{Token: string(token)}, err
		}), nil
	}
	found := login.FindStringSubmatch(given["sasl.jaas.config"])
	if found == nil {
		return nil, fmt.Errorf("no user and password in the properties")
	}
	user, password := found[1], found[2]
	switch given["sasl.mechanism"] {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("no mechanism %q", given["sasl.mechanism"])
}
