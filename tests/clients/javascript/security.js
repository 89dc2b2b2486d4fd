'use strict'
// Turns the properties of Java's clients, in the file that CLIENT_PROPERTIES names, into kafkajs' settings.

const fs = require('node:fs')
const { fileURLToPath } = require('node:url')

const LOGIN = /username="([^"]*)" password="([^"]*)"/

function secured() {
  const path = process.env.CLIENT_PROPERTIES
  if (!path) return {}
  const lines = fs.readFileSync(path, 'utf8').split('\n')
  const given = Object.fromEntries(lines.map(line => [line.split('=', 1)[0], line.slice(line.indexOf('=') + 1)]))
  const ssl = { ca: [fs.readFileSync(given['ssl.truststore.location'])] }
  const store = given['ssl.keystore.location']
  if (store) ssl.key = ssl.cert = fs.readFileSync(store)
  if (given['security.protocol'] === 'SSL') return { ssl }
  return { ssl, sasl: mechanismOf(given) }
}

function mechanismOf(given) {
  const mechanism = given['sasl.mechanism'].toLowerCase()
  if (mechanism === 'oauthbearer') {
    const file = fileURLToPath(given['sasl.oauthbearer.token.endpoint.url'])
    return { mechanism, oauthBearerProvider: async () => ({ value: fs.readFileSync(file, 'utf8') }) }
  }
  const [, username, password] = LOGIN.exec(given['sasl.jaas.config'])
  return { mechanism, username, password }
}

module.exports = { secured }
